// The graph's fingerprint: SHA-256 over a canonical text, one line for each thing that matters.
#include <fmt/format.h>

#include <iterator>

#include "partitioner/base/sha256.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

std::string graph_hash(const BlockGraph& graph) {
  std::string text;
  const auto line = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
    text += '\n';
  };
  line("graph 1 {} {}x{} output {}", graph.model, graph.width, graph.height, graph.output);
  for (const Value& value : graph.values)
    line("value {} {} [{}] {}", value.name, value.producer, fmt::join(value.shape, ","),
         to_string(value.dtype));
  for (const Block& block : graph.blocks) {
    line("block {} {} {} {} {} [{}] {}", block.name, block.part, block.section,
         to_string(block.kind), block.trainable ? "trainable" : "frozen",
         fmt::join(block.inputs, ","), block.output);
    for (const Param& param : block.params)
      line("param {} [{}]", param.name, fmt::join(param.shape, ","));
    for (const LocalTensor& tensor : block.tensors)
      line("tensor [{}] {}", fmt::join(tensor.shape, ","), to_string(tensor.dtype));
    for (const Op& op : block.ops)
      line("op {} [{}] {} [{}] [{}] {:.17g}", to_string(op.kind), fmt::join(op.inputs, ","),
           op.output, fmt::join(op.params, ","), fmt::join(op.ints, ","), op.eps);
  }
  return sha256_hex(text);
}

}  // namespace stagecraft
