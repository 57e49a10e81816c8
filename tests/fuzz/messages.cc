// A communicator that waits for two messages from a peer that sends headers, payloads and trailers
// with right checksums, and then anything.
#include "tests/fuzz/connection.h"

namespace stagecraft::fuzz {
namespace {

// Frames of the input: kind, step, message number, bytes that the header names, bytes that follow.
// A kind of 0 sends the rest raw.
std::string said_by_peer(Script script) {
  std::string bytes;
  while (!script.empty() && bytes.size() < kMostBytes / 2) {
    const auto kind = script.take<uint8_t>();
    if (kind == 0) return bytes.append(script.rest().substr(0, kMostBytes / 4));
    const Header header{.kind = static_cast<Kind>(kind),
                        .tag = {.step = script.take<int8_t>(), .message = script.take<int8_t>()},
                        .bytes = script.take<uint16_t>()};
    const std::string_view payload = script.take_bytes(script.take<uint8_t>());
    bytes.append(bytes_of(encode_header(header))).append(payload);
    bytes.append(bytes_of(encode_trailer(checksum_of(payload))));
  }
  return bytes;
}

void fuzz_messages(std::string_view input) {
  std::vector<Descriptor> connections(2);
  connections[1] = listen_to(said_by_peer(Script(input)));
  const auto communicator =
      make_socket_communicator({.folder = "",
                                .rank = 0,
                                .size = 2,
                                .startup_deadline = {},
                                .deadline = std::chrono::seconds(1)},
                               std::move(connections), std::make_shared<SocketFate>(0));
  std::vector<std::byte> first(24), second(8);
  try {
    const auto a = communicator->receive(1, {.step = 1, .message = 0}, {std::span(first)}, nullptr);
    const auto b =
        communicator->receive(1, {.step = 1, .message = 1}, {std::span(second)}, nullptr);
    a->wait();
    b->wait();
  } catch (const CommError& error) {
    accept(error, {ExitCode::kRankDied});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(messages)
}  // namespace stagecraft::fuzz
