#include "partitioner/cost/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/base/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/toy_graph.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

BlockGraph two_blocks() {
  return ToyGraph().add("a", {"input.x"}, true).add("b", {"a", "input.y"}, true).build("b");
}

CostTable toy_table(const BlockGraph& graph) {
  CostTable table{.made_by = "measured",
                  .machine = "a \"quoted\" machine",
                  .device = "cpu",
                  .precision = "fp32",
                  .width = graph.width,
                  .height = graph.height,
                  .micro_batch = 2,
                  .graph_hash = graph_hash(graph),
                  .blocks = {}};
  int64_t n = 1;
  for (const Block& block : graph.blocks) {
    BlockCost& cost = table.blocks[block.name];
    cost.forward = {.median = {n}, .spread = {n + 1}};
    cost.backward_input = {.median = {n + 2}, .spread = {n + 3}};
    cost.backward_weight = {.median = {n + 4}, .spread = {n + 5}};
    cost.saved_internal = {n + 6};
    cost.keeps_input.assign(block.inputs.size(), n % 2 == 0);
    cost.keeps_input.back() = true;
    cost.keeps_output = n % 2 == 1;
    cost.workspace_forward = {n + 7};
    cost.workspace_backward = {n + 8};
    cost.output = {n + 9};
    cost.parameters = {int64_t{1} << 40};
    n += 10;
  }
  return table;
}

TEST(CostTable, ReadsBackWhatItWrote) {
  TempFolder folder;
  const CostTable table = toy_table(two_blocks());
  write_cost_table(table, folder.file("c.json"));
  EXPECT_EQ(read_cost_table(folder.file("c.json")), table);
}

TEST(CostTable, OneByteTooManyIsInvalidData) {
  TempFolder folder;
  std::string text = to_json(toy_table(two_blocks()));
  text.resize(size_t{4} << 20, ' ');
  EXPECT_NO_THROW(read_cost_table(folder.write("c.json", text)));
  const auto error = caught([&] { read_cost_table(folder.write("c.json", text + " ")); });
  EXPECT_EQ(error.code, ExitCode::kDataInvalid);
  EXPECT_THAT(error.message, HasSubstr("4194305 bytes, at most 4194304 are allowed"));
}

TEST(CostTable, TextIsCanonicalWithOneBlockALine) {
  EXPECT_EQ(to_json(toy_table(two_blocks())),
            R"({
  "blocks": {
    "a": {"backward_input_ns":[3,4],"backward_weight_ns":[5,6],"forward_ns":[1,2],"keeps_input":[true],"keeps_output":true,"output":10,"parameters":1099511627776,"saved_internal":7,"workspace_backward":9,"workspace_forward":8},
    "b": {"backward_input_ns":[13,14],"backward_weight_ns":[15,16],"forward_ns":[11,12],"keeps_input":[false,true],"keeps_output":true,"output":20,"parameters":1099511627776,"saved_internal":17,"workspace_backward":19,"workspace_forward":18}
  },
  "device": "cpu",
  "format": "stagecraft cost table 1",
  "graph_hash": ")" +
                graph_hash(two_blocks()) +
                R"(",
  "height": 64,
  "machine": "a \"quoted\" machine",
  "made_by": "measured",
  "micro_batch": 2,
  "precision": "fp32",
  "width": 64
}
)");
}

std::string refusal(const std::string& from, const std::string& to) {
  TempFolder folder;
  std::string text = to_json(toy_table(two_blocks()));
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto error = caught([&] { read_cost_table(folder.write("c.json", text)); });
  EXPECT_EQ(error.code, ExitCode::kDataInvalid);
  return error.message;
}

TEST(CostTable, BrokenFilesAreRefusedNamingTheKey) {
  EXPECT_THAT(refusal("\"output\":10", "\"output\":-10"),
              HasSubstr("c.json: `blocks.a.output` must be a whole number"));
  EXPECT_THAT(refusal("\"output\":10", "\"output\":1e300"), HasSubstr("`blocks.a.output` must be"));
  EXPECT_THAT(refusal("\"output\":10", "\"outputs\":10"),
              HasSubstr("`blocks.a.output` is missing"));
  EXPECT_THAT(refusal("\"output\":10", "\"output\":10,\"x\":1"),
              HasSubstr("`blocks.a` holds keys that are not known"));
  EXPECT_THAT(refusal("\"output\":10", "\"output\":4398046511105"),
              HasSubstr("`blocks.a.output` must be at most 2^42"));
  EXPECT_THAT(refusal("[3,4]", "[4398046511105,4]"),
              HasSubstr("`blocks.a.backward_input_ns` must be at most 2^42"));
  EXPECT_THAT(refusal("[3,4]", "[3]"),
              HasSubstr("`blocks.a.backward_input_ns` must be [median, spread]"));
  EXPECT_THAT(refusal("\"width\": 64", "\"width\": \"64\""),
              HasSubstr("`width` must be a whole number"));
  EXPECT_THAT(refusal("cost table 1", "cost table 2"), HasSubstr("`format` is not the one"));
  EXPECT_THAT(refusal("{\n", "[\n"), HasSubstr("not JSON"));
}

TEST(CostTable, DeepNestingIsRefused) {
  TempFolder folder;
  const auto path = folder.write("c.json", std::string(1'000'000, '['));
  EXPECT_EQ(caught([&] { read_cost_table(path); }).code, ExitCode::kDataInvalid);
}

TEST(CostTable, MadeForThisJobIsAccepted) {
  const BlockGraph graph = two_blocks();
  EXPECT_NO_THROW(check_cost_table(toy_table(graph), graph,
                                   {.device = "cpu", .precision = "fp32", .micro_batch = 2}));
}

TEST(CostTable, MadeForAnotherJobIsRefusedNamingBoth) {
  const BlockGraph graph = two_blocks();
  const CostTable table = toy_table(graph);
  const CostUse use{.device = "cpu", .precision = "fp32", .micro_batch = 2};
  const auto refused = [&](const CostTable& t, const CostUse& wanted) {
    const auto error = caught([&] { check_cost_table(t, graph, wanted); });
    EXPECT_EQ(error.code, ExitCode::kPlanMismatch);
    return error.message;
  };
  const auto changed = [&](auto change) {
    CostUse wanted = use;
    change(wanted);
    return wanted;
  };
  EXPECT_THAT(refused(table, changed([](CostUse& u) { u.device = "rtx3090"; })),
              HasSubstr("made for device cpu, this job has rtx3090"));
  EXPECT_THAT(refused(table, changed([](CostUse& u) { u.precision = "fp16"; })),
              HasSubstr("made for precision fp32, this job has fp16"));
  EXPECT_THAT(refused(table, changed([](CostUse& u) { u.micro_batch = 1; })),
              HasSubstr("made for micro-batch 2, this job has 1"));
  CostTable other = table;
  other.width = 128;
  EXPECT_THAT(refused(other, use), HasSubstr("made for pixels 128x64, this job has 64x64"));
  other = table;
  other.graph_hash = std::string(64, '0');
  EXPECT_THAT(refused(other, use), HasSubstr("made for graph 000000000000"));
  other = table;
  other.blocks.erase("b");
  EXPECT_THAT(refused(other, use), HasSubstr("no block b"));
}

}  // namespace
}  // namespace stagecraft
