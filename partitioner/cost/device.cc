#include "partitioner/cost/device.h"

#include "partitioner/base/strict_yaml.h"
#include "partitioner/cost/device_fields.h"

namespace stagecraft {
namespace {

// Either one figure or its terms.
void read_base(YamlDocument& document, Fields& fields, Device& device) {
  constexpr NumberRange kMib{0, kMaxMib};
  read_mib(fields, "base_mib", &device.base, kMib, kOptional);
  const YamlNode* node = fields.map("base", kOptional);
  if (fields.has("base_mib") == fields.has("base")) {
    document.error(fields.mark("base"), "give either base_mib or base, a map of its terms");
  }
  if (node == nullptr) return;
  double sum = 0;
  Fields terms(document, *node, "base");
  for (const char* term :
       {"context_mib", "kernels_mib", "cublas_workspace_mib", "allocator_segments_mib"}) {
    double mib = 0;
    terms.number(term, &mib, kMib);
    sum += mib;
  }
  terms.finish();
  device.base = Bytes::from_mib(sum);
}

}  // namespace

Device read_device(const std::string& path) {
  YamlDocument document = YamlDocument::read(path);
  Device device;
  Fields fields(document, document.root());
  fields.string("name", &device.name);
  fields.string("kind", &device.kind, kRequired, {"cuda", "cpu"});
  read_mib(fields, "memory_mib", &device.memory, {1, kMaxMib});
  Bytes reserved;
  read_mib(fields, "reserved_mib", &reserved, {0, kMaxMib}, kOptional);
  device.memory -= reserved;
  double fp32 = 0, fp16 = 0, gb_per_s = 0, latency_us = 0;
  constexpr NumberRange kRate{1e-6, 1e6};
  fields.number("tflops_fp32", &fp32, kRate);
  fields.number("tflops_fp16", &fp16, kRate);
  fields.number("bandwidth_gb_per_s", &gb_per_s, kRate);
  if (const YamlNode* node = fields.map("efficiency")) {
    constexpr NumberRange kPart{0.001, 1.0};
    Fields efficiency(document, *node, "efficiency");
    efficiency.number("matmul", &device.efficiency_matmul, kPart);
    efficiency.number("conv", &device.efficiency_conv, kPart);
    efficiency.number("attention", &device.efficiency_attention, kPart);
    efficiency.number("bandwidth", &device.efficiency_bandwidth, kPart);
    efficiency.finish();
  }
  std::string attention = "flash";
  fields.string("attention", &attention, kOptional, {"flash", "math"});
  device.attention = attention == "math" ? AttentionKernel::kMath : AttentionKernel::kFlash;
  fields.number("op_latency_us", &latency_us, {0, 1e6});
  read_base(document, fields, device);
  read_mib(fields, "comm_buffer_per_peer_mib", &device.comm_buffer_per_peer, {0, kMaxMib});
  fields.number("slack_fraction", &device.slack_fraction, {0, 1});
  fields.finish();
  if (device.base >= device.memory) {
    document.error(fields.mark(fields.has("base") ? "base" : "base_mib"),
                   "what is reserved and held by an idle process leaves nothing of memory_mib");
  }
  document.throw_if_errors();
  device.flops_fp32 = fp32 * 1e12;
  device.flops_fp16 = fp16 * 1e12;
  device.bandwidth = gb_per_s * 1e9;
  device.op_latency = from_micros(latency_us);
  return device;
}

}  // namespace stagecraft
