// SHA-256 (FIPS 180-4) as lower-case hex, of bytes and of files. OpenSSL does the work.
//
// Any thread; no state.
#pragma once

#include <string>
#include <string_view>

namespace stagecraft {

std::string sha256_hex(std::string_view bytes);

// Reads the file in pieces of 1 MiB; blocks on the disk. Throws InputError(kIo) when it cannot be
// read.
std::string sha256_hex_of_file(const std::string& path);

}  // namespace stagecraft
