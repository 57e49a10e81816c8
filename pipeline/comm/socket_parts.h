// The pieces that connect_socket_world puts together. Internal to the socket transport.
#pragma once

#include <memory>
#include <vector>

#include "partitioner/base/descriptor.h"
#include "pipeline/comm/socket.h"
#include "pipeline/comm/socket_fate.h"

namespace stagecraft {

struct Connections {
  std::vector<Descriptor> data;     // by rank; the own one is empty
  std::vector<Descriptor> control;  // rank 0: by rank, the own one empty; others: one, to rank 0
};

// Blocks until all are there. Throws CommError (8).
Connections meet(const SocketWorldOptions& options);

std::unique_ptr<Communicator> make_socket_communicator(const SocketWorldOptions& options,
                                                       std::vector<Descriptor> connections,
                                                       std::shared_ptr<SocketFate> fate);

std::unique_ptr<ControlChannel> make_socket_control(const SocketWorldOptions& options,
                                                    std::vector<Descriptor> connections,
                                                    std::shared_ptr<SocketFate> fate);

}  // namespace stagecraft
