// CLIP's text transformer as a chain of blocks, after transformers' CLIPTextModel. fp32, frozen.
#include <fmt/format.h>

#include "models/network/block_builder.h"
#include "models/network/build.h"

namespace stagecraft {
namespace {

BlockPlace place(const std::string& section, BlockKind kind = BlockKind::kOther) {
  return {.part = "text_encoder", .section = section, .kind = kind, .trainable = false};
}

// LayerNorm, causal self-attention, + input; LayerNorm, two linear layers with quick GELU between,
// + input.
int add_layer(GraphBuilder& graph, const TextEncoderConfig& config, const std::string& name,
              int x) {
  BlockBuilder block(graph, place("layers", BlockKind::kTransformer), name, {x});
  const int64_t width = config.hidden_size;
  int branch = block.layer_norm(0, name + ".layer_norm1");
  const int q = block.linear(branch, name + ".self_attn.q_proj", width);
  const int k = block.linear(branch, name + ".self_attn.k_proj", width);
  const int v = block.linear(branch, name + ".self_attn.v_proj", width);
  branch = block.attention({.q = q, .k = k, .v = v}, config.heads, true);
  branch = block.linear(branch, name + ".self_attn.out_proj", width);
  const int h = block.add(0, branch);
  branch = block.layer_norm(h, name + ".layer_norm2");
  branch = block.linear(branch, name + ".mlp.fc1", config.intermediate_size);
  branch = block.quick_gelu(branch);
  branch = block.linear(branch, name + ".mlp.fc2", width);
  block.add(h, branch);
  return block.finish();
}

}  // namespace

BlockGraph build_text_encoder(const ModelConfig& model) {
  const TextEncoderConfig& config = model.text_encoder;
  GraphBuilder graph(model.name, 0, 0, DType::kF32);
  int h = graph.add_input("input.ids", {config.max_length}, DType::kI64);
  {
    BlockBuilder block(graph, place("embeddings"), "embeddings", {h});
    const int token =
        block.embedding(0, "embeddings.token_embedding", config.vocab_size, config.hidden_size);
    block.add_parameter(token, "embeddings.position_embedding");
    h = block.finish();
  }
  for (int64_t layer = 0; layer < config.layers; ++layer)
    h = add_layer(graph, config, fmt::format("encoder.layers.{}", layer), h);
  BlockBuilder block(graph, place("final_layer_norm"), "final_layer_norm", {h});
  block.layer_norm(0, "final_layer_norm");
  return graph.finish(block.finish());
}

}  // namespace stagecraft
