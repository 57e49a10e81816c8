// The I/O thread of a socket communicator: one poll loop that moves the bytes of all peers.
//
// Threads that send and receive put transfers on the board and wait there; the loop takes them,
// owns them while they are under way, and marks them done. Internal to the socket transport.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "partitioner/base/descriptor.h"
#include "pipeline/comm/polling.h"
#include "pipeline/comm/socket_fate.h"
#include "pipeline/comm/socket_transfer.h"
#include "pipeline/comm/wire.h"

namespace stagecraft {

using TransferPtr = std::shared_ptr<SocketTransfer>;

// Waiting threads and I/O thread meet here. Operations hold it, so that they may outlive the
// communicator.
struct SocketBoard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<TransferPtr> posted;  // not yet taken by the I/O thread
  bool stopped = false;             // the I/O thread touches no transfer any more
  bool closing = false;
  std::shared_ptr<SocketFate> fate;
  EventFlag wake;
  std::vector<std::atomic<int64_t>>
      moved;  // payload bytes by peer, both directions: a sign of life
  int rank = 0;
  std::chrono::milliseconds deadline{};
};

// Owns the connections; runs in a thread of its own until something fails or the communicator
// closes.
class SocketLoop {
 public:
  SocketLoop(std::shared_ptr<SocketBoard> board, std::vector<Descriptor> connections);

  void run();
  // The peers see the end at once. After the thread has ended.
  void hang_up();

 private:
  // A connection as the I/O thread sees it.
  struct Peer {
    Descriptor fd;
    std::deque<TransferPtr> sends;
    std::deque<TransferPtr> receives;
    HeaderBytes header{};  // of the message that comes next, read ahead of its receive
    size_t header_got = 0;
    std::optional<Header> incoming;  // set when the header is complete
    bool left = false;               // said goodbye
  };

  bool take_posted();  // false when the communicator closes and nothing is under way
  void wait_for_events();
  void serve(int index);
  void receive_from(int index);
  bool read_header(int index);   // true when the header of the next message is complete
  bool agrees(int index) const;  // the header that came and the oldest receive
  void send_to(int index);
  static void begin(SocketTransfer& transfer);  // notes the start, once
  void finish(std::deque<TransferPtr>& queue);
  void lose_connection(int index);
  void lose(int index, std::string text);
  // Only with nothing unfinished: otherwise closing the connection tells the peers that this rank
  // is gone.
  void say_goodbye();

  std::shared_ptr<SocketBoard> board_;
  std::vector<Peer> peers_;  // by rank
  std::vector<pollfd> entries_;
};

}  // namespace stagecraft
