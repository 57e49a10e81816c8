// Quantities with their unit in the type: bytes and nanoseconds.
//
// Values; any thread. MiB and GiB are 1024-based throughout the project.
#pragma once

#include <compare>
#include <cstdint>

namespace stagecraft {

struct Bytes {
  int64_t count = 0;
  auto operator<=>(const Bytes&) const = default;
  Bytes& operator+=(Bytes o) {
    count += o.count;
    return *this;
  }
  Bytes& operator-=(Bytes o) {
    count -= o.count;
    return *this;
  }
  friend Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  friend Bytes operator*(Bytes a, int64_t n) { return {a.count * n}; }
  double mib() const { return static_cast<double>(count) / (1024.0 * 1024.0); }
  double gib() const { return mib() / 1024.0; }
  static Bytes from_mib(double mib) { return {static_cast<int64_t>(mib * 1024.0 * 1024.0)}; }
};

struct Nanos {
  int64_t count = 0;
  auto operator<=>(const Nanos&) const = default;
  Nanos& operator+=(Nanos o) {
    count += o.count;
    return *this;
  }
  Nanos& operator-=(Nanos o) {
    count -= o.count;
    return *this;
  }
  friend Nanos operator+(Nanos a, Nanos b) { return {a.count + b.count}; }
  friend Nanos operator-(Nanos a, Nanos b) { return {a.count - b.count}; }
  friend Nanos operator*(Nanos a, int64_t n) { return {a.count * n}; }
  double millis() const { return static_cast<double>(count) / 1e6; }
  double seconds() const { return static_cast<double>(count) / 1e9; }
};

}  // namespace stagecraft
