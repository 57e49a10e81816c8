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

EVP_MD_CTX* digest_of(const std::shared_ptr<void>& context) {
  return static_cast<EVP_MD_CTX*>(context.get());
}

}  // namespace

Sha256::Sha256()
    : context_(EVP_MD_CTX_new(), [](void* p) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(p)); }) {
  check(context_ && EVP_DigestInit_ex(digest_of(context_), EVP_sha256(), nullptr) == 1,
        "SHA-256 cannot be started");
}

void Sha256::add(std::string_view bytes) {
  check(EVP_DigestUpdate(digest_of(context_), bytes.data(), bytes.size()) == 1, "SHA-256 failed");
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(digest_of(context_), digest.data(), &size) == 1, "SHA-256 failed");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 digest;
  digest.add(bytes);
  return digest.hex();
}

std::string sha256_hex_of_file(const std::string& path) {
  std::unique_ptr<std::FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "rbe"),
                                                          std::fclose);
  const auto fail = [&path] {
    throw InputError(ExitCode::kIo, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  };
  if (!file) fail();
  Sha256 digest;
  std::vector<char> buffer(1 << 20);
  while (true) {
    const size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get());
    digest.add({buffer.data(), n});
    if (n < buffer.size()) {
      if (std::ferror(file.get())) fail();
      return digest.hex();
    }
  }
}

}  // namespace stagecraft
