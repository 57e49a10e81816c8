#include "pipeline/comm/address.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr size_t kMaxPath = sizeof(sockaddr_un{}.sun_path) - 1;  // 107 bytes and the NUL
// "/rank-12345.sock"
constexpr size_t kNameLength = 16;
constexpr int kBacklog = 128;

sockaddr_un unix_address(const RankAddress& address) {
  sockaddr_un result{};
  result.sun_family = AF_UNIX;
  std::memcpy(result.sun_path, address.path.c_str(), address.path.size() + 1);
  return result;
}

Descriptor open_socket(int rank) {
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    throw CommError(ExitCode::kStartup, rank,
                    fmt::format("cannot create a socket: {}", std::strerror(errno)));
  }
  return fd;
}

}  // namespace

RankAddress rank_address(const std::string& folder, int rank) {
  RankAddress address{.path = fmt::format("{}/rank-{}.sock", folder, rank)};
  if (address.path.size() > kMaxPath) {
    throw CommError(
        ExitCode::kStartup, rank,
        fmt::format("socket path {} has {} bytes, the system allows {}: choose a shorter folder",
                    address.path, address.path.size(), kMaxPath));
  }
  return address;
}

std::string make_run_folder() {
  std::string tried;
  const char* const bases[] = {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"), "/tmp"};
  for (const char* base : bases) {
    if (base == nullptr || *base == '\0') continue;
    std::string path = fmt::format("{}/stagecraft-XXXXXX", base);
    if (path.size() + kNameLength > kMaxPath) {
      tried += fmt::format(" {} (too long)", base);
    } else if (::mkdtemp(path.data()) == nullptr) {  // mode 0700
      tried += fmt::format(" {} ({})", base, std::strerror(errno));
    } else {
      return path;
    }
  }
  throw InputError(
      ExitCode::kIo,
      fmt::format("no place for the run's sockets:{}; set TMPDIR to a short writable folder",
                  tried));
}

Descriptor listen_at(const RankAddress& address, int rank) {
  Descriptor fd = open_socket(rank);
  const sockaddr_un target = unix_address(address);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    throw CommError(
        ExitCode::kStartup, rank,
        fmt::format("rank {} cannot listen at {}: {}", rank, address.path, std::strerror(errno)));
  }
  return fd;
}

Descriptor try_connect(const RankAddress& address, int peer) {
  Descriptor fd = open_socket(peer);
  const sockaddr_un target = unix_address(address);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) == 0)
    return fd;
  switch (errno) {
    case ENOENT:        // not listening yet
    case ECONNREFUSED:  // bound, not listening yet
    case EAGAIN:        // its queue is full
    case EINTR:
      return {};
    default:
      throw CommError(
          ExitCode::kStartup, peer,
          fmt::format("cannot reach rank {} at {}: {}", peer, address.path, std::strerror(errno)));
  }
}

Descriptor try_accept(const Descriptor& listener) {
  return Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

}  // namespace stagecraft
