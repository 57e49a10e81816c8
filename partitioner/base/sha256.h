// SHA-256 (FIPS 180-4) as lower-case hex, of bytes and of files. OpenSSL does the work.
//
// Any thread, a Sha256 by one at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace stagecraft {

// Of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  void add(std::string_view bytes);
  std::string hex();  // once, at the end

 private:
  std::shared_ptr<void> context_;
};

std::string sha256_hex(std::string_view bytes);

// Reads the file in pieces of 1 MiB; blocks on the disk. Throws InputError(kIo) when it cannot be
// read.
std::string sha256_hex_of_file(const std::string& path);

}  // namespace stagecraft
