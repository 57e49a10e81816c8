// How far a model's figures lie from what was measured: collects errors by name, prints a table,
// judges.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace stagecraft {

struct ErrorLimits {
  double median = 0.05, worst = 0.10, under = 0.02;
};

class ModelErrors {
 public:
  // `where` names the case when it is the worst of its kind.
  void add(const std::string& name, double predicted, double measured, const std::string& where) {
    errors_[name].push_back({(predicted - measured) / measured, where});
  }

  // Every line has the name, how many figures, the median and largest absolute error, the lowest
  // error (negative: the model said too little) and where it was.
  void print(const std::string& title) const {
    fmt::print("| {} | figures | median error | worst error | most under | there |\n", title);
    fmt::print("|---|---|---|---|---|---|\n");
    for (const auto& [name, errors] : errors_) {
      const Error& lowest = *std::min_element(errors.begin(), errors.end(), by_value);
      const std::vector<double> sizes = absolute(errors);
      fmt::print("| {} | {} | {:.3f} % | {:.3f} % | {:.3f} % | {} |\n", name, errors.size(),
                 100 * sizes[sizes.size() / 2], 100 * sizes.back(),
                 100 * std::max(0.0, -lowest.value), lowest.value < 0 ? lowest.where : "-");
    }
  }

  void expect_within(const ErrorLimits& limits) const {
    for (const auto& [name, errors] : errors_) {
      const std::vector<double> sizes = absolute(errors);
      EXPECT_LE(sizes[sizes.size() / 2], limits.median) << name;
      for (const Error& error : errors) {
        EXPECT_LE(std::abs(error.value), limits.worst) << name << ", " << error.where;
        EXPECT_GE(error.value, -limits.under) << name << ", " << error.where;
      }
    }
  }

 private:
  struct Error {
    double value;
    std::string where;
  };
  static bool by_value(const Error& a, const Error& b) { return a.value < b.value; }
  static std::vector<double> absolute(const std::vector<Error>& errors) {
    std::vector<double> sizes;
    for (const Error& error : errors) sizes.push_back(std::abs(error.value));
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  }

  std::map<std::string, std::vector<Error>> errors_;
};

}  // namespace stagecraft
