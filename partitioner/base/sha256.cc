#include "partitioner/base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
          "SHA-256 cannot be started");
  }
  void add(const void* data, size_t size) {
    check(EVP_DigestUpdate(context_.get(), data, size) == 1, "SHA-256 failed");
  }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    check(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1, "SHA-256 failed");
    std::string text;
    for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hex();
}

std::string sha256_hex_of_file(const std::string& path) {
  std::unique_ptr<std::FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "rbe"),
                                                          std::fclose);
  const auto fail = [&path] {
    throw InputError(ExitCode::kIo, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  };
  if (!file) fail();
  Digest digest;
  std::vector<char> buffer(1 << 20);
  while (true) {
    const size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get());
    digest.add(buffer.data(), n);
    if (n < buffer.size()) {
      if (std::ferror(file.get())) fail();
      return digest.hex();
    }
  }
}

}  // namespace stagecraft
