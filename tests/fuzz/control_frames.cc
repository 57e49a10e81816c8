// The control channel of a rank whose peer speaks the protocol, up to checksums, and then anything.
//
// The input's first byte tells whose side: rank 0 hears requests, rank 1 hears replies. Then frames
// (kind, sequence, lengths of name and payload, bytes), sealed; a kind of 0 sends the rest raw.
#include "tests/fuzz/connection.h"

namespace stagecraft::fuzz {
namespace {

constexpr std::string_view kCollective = "vote";

std::string frames_of(Script& script) {
  std::string bytes;
  while (!script.empty() && bytes.size() < kMostBytes / 2) {
    const auto kind = script.take<uint8_t>();
    if (kind == 0) return bytes.append(script.rest().substr(0, kMostBytes / 4));
    const auto sequence = script.take<uint8_t>();
    const auto name_bytes = script.take<uint8_t>();
    const auto payload_bytes = script.take<uint16_t>() % 1024;
    std::string name(script.take_bytes(name_bytes));
    if (name_bytes == 255) name = kCollective;  // a name that is expected
    const std::string body = name.append(script.take_bytes(payload_bytes));
    const size_t name_size = name_bytes == 255 ? kCollective.size() : name_bytes;
    const auto header =
        encode_frame({.kind = static_cast<FrameKind>(kind),
                      .sequence = sequence,
                      .name_bytes = static_cast<uint32_t>(name_size),
                      .payload_bytes = body.size() - std::min(body.size(), name_size),
                      .checksum = checksum_of(body)});
    bytes.append(bytes_of(header)).append(body);
  }
  return bytes;
}

void fuzz_control_frames(std::string_view input) {
  Script script(input);
  const int rank = script.take<uint8_t>() % 2;
  std::vector<Descriptor> connections(rank == 0 ? 2 : 1);
  connections.back() = listen_to(frames_of(script));
  const auto control =
      make_socket_control({.folder = "",
                           .rank = rank,
                           .size = 2,
                           .startup_deadline = {},
                           .deadline = std::chrono::seconds(1)},
                          std::move(connections), std::make_shared<SocketFate>(rank));
  try {
    for (int turn = 0; turn < 3; ++turn) {
      require(control->all_gather(kCollective, "yes").size() == 2, "every rank has a payload");
    }
  } catch (const CommError& error) {
    accept(error, {ExitCode::kRankDied, ExitCode::kStall, ExitCode::kStartup, ExitCode::kInternal});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(control_frames)
}  // namespace stagecraft::fuzz
