#include "models/network/layers.h"

namespace stagecraft {
namespace {

constexpr ConvShape one_by_one(int64_t channels) {
  return {.out_channels = channels, .kernel = 1, .stride = 1, .padding = 0};
}

struct AttentionSpec {
  std::string name{};  // module
  int sequence = -1;
  int context = -1;  // the sequence itself in self-attention
  int64_t heads = 8;
};

// Projections without bias, attention, output projection; the width stays.
int attend(BlockBuilder& block, const AttentionSpec& spec) {
  const int64_t width = block.shape(spec.sequence)[1];
  const int q = block.linear(spec.sequence, spec.name + ".to_q", width, false);
  const int k = block.linear(spec.context, spec.name + ".to_k", width, false);
  const int v = block.linear(spec.context, spec.name + ".to_v", width, false);
  const int mixed = block.attention({.q = q, .k = k, .v = v}, spec.heads);
  return block.linear(mixed, spec.name + ".to_out.0", width);
}

}  // namespace

int add_resnet(GraphBuilder& graph, BlockPlace place, const std::string& name,
               const ResnetSpec& spec) {
  place.kind = BlockKind::kResnet;
  std::vector<int> inputs = {spec.x};
  if (spec.skip >= 0) inputs.push_back(spec.skip);
  if (spec.temb >= 0) inputs.push_back(spec.temb);
  const int temb = static_cast<int>(inputs.size()) - 1;
  BlockBuilder block(graph, place, name, inputs);
  const int x = spec.skip >= 0 ? block.concat_channels(0, 1) : 0;
  int h = block.group_norm(x, name + ".norm1", spec.norm.groups, spec.norm.eps);
  h = block.silu(h);
  h = block.conv(h, name + ".conv1", {.out_channels = spec.out_channels});
  if (spec.temb >= 0) {
    const int t = block.linear(block.silu(temb), name + ".time_emb_proj", spec.out_channels);
    h = block.add_per_channel(h, t);
  }
  h = block.group_norm(h, name + ".norm2", spec.norm.groups, spec.norm.eps);
  h = block.silu(h);
  h = block.conv(h, name + ".conv2", {.out_channels = spec.out_channels});
  int shortcut = x;
  if (block.shape(x)[0] != spec.out_channels)
    shortcut = block.conv(x, name + ".conv_shortcut", one_by_one(spec.out_channels));
  block.add(shortcut, h);
  return block.finish();
}

int add_transformer(GraphBuilder& graph, BlockPlace place, const std::string& name,
                    const TransformerSpec& spec) {
  place.kind = BlockKind::kTransformer;
  BlockBuilder block(graph, place, name, {spec.x, spec.context});
  const int x = 0, context = 1;
  const std::vector<int64_t> image = block.shape(x);
  const std::string layer = name + ".transformer_blocks.0";
  int h = block.group_norm(x, name + ".norm", spec.groups, 1e-6);
  h = block.conv(h, name + ".proj_in", one_by_one(image[0]));
  h = block.to_sequence(h);

  int normed = block.layer_norm(h, layer + ".norm1");
  int branch = attend(
      block,
      {.name = layer + ".attn1", .sequence = normed, .context = normed, .heads = spec.heads});
  h = block.add(branch, h);

  normed = block.layer_norm(h, layer + ".norm2");
  branch = attend(
      block,
      {.name = layer + ".attn2", .sequence = normed, .context = context, .heads = spec.heads});
  h = block.add(branch, h);

  normed = block.layer_norm(h, layer + ".norm3");
  branch = block.linear(normed, layer + ".ff.net.0.proj", 8 * image[0]);
  branch = block.geglu(branch);
  branch = block.linear(branch, layer + ".ff.net.2", image[0]);
  h = block.add(branch, h);

  h = block.to_image(h, image[1], image[2]);
  h = block.conv(h, name + ".proj_out", one_by_one(image[0]));
  block.add(h, x);
  return block.finish();
}

int add_upsample(GraphBuilder& graph, BlockPlace place, const std::string& name, int x) {
  place.kind = BlockKind::kUpsample;
  BlockBuilder block(graph, place, name, {x});
  const int wide = block.upsample(0);
  block.conv(wide, name + ".conv", {.out_channels = block.shape(wide)[0]});
  return block.finish();
}

int add_out(GraphBuilder& graph, BlockPlace place, const std::string& prefix, const OutSpec& spec) {
  place.kind = BlockKind::kOut;
  BlockBuilder block(graph, place, prefix + "conv_out", {spec.x});
  int h = block.group_norm(0, prefix + "conv_norm_out", spec.norm.groups, spec.norm.eps);
  h = block.silu(h);
  block.conv(h, prefix + "conv_out", {.out_channels = spec.out_channels});
  return block.finish();
}

int add_conv(GraphBuilder& graph, BlockPlace place, const std::string& name, int x,
             ConvShape shape) {
  BlockBuilder block(graph, std::move(place), name, {x});
  block.conv(0, name, shape);
  return block.finish();
}

int add_sum(GraphBuilder& graph, const std::string& part, const std::string& name, int a, int b) {
  BlockBuilder block(graph, {.part = part, .section = "sums", .kind = BlockKind::kSum}, name,
                     {a, b});
  block.add(0, 1);
  return block.finish();
}

}  // namespace stagecraft
