// Names and shapes of every parameter against the installed diffusers and transformers, at real
// size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "models/network/build.h"
#include "tests/support/programs.h"
#include "tests/support/python.h"

namespace stagecraft {
namespace {

using ::testing::IsEmpty;

std::vector<std::string> missing_from(const std::set<std::string>& some,
                                      const std::set<std::string>& all) {
  std::vector<std::string> missing;
  std::ranges::set_difference(all, some, std::back_inserter(missing));
  return missing;
}

std::string name_and_shape(const Param& param) {
  std::ostringstream line;
  line << param.name;
  for (size_t i = 0; i < param.shape.size(); ++i) line << (i == 0 ? ' ' : ',') << param.shape[i];
  return line.str();
}

TEST(NetworkNames, EveryParameterIsNamedAndShapedAsInDiffusersAndTransformers) {
  std::set<std::string> theirs;
  std::istringstream lines(must_run(python_command("tests/python/list_parameters.py", {})));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("parameter ")) theirs.insert(line.substr(10));
  }
  std::set<std::string> ours;
  const ModelConfig model;
  for (const BlockGraph& graph :
       {build_training_graph(model, 64, 64, {}), build_vae_encoder(model, 64, 64),
        build_vae_decoder(model, 64, 64), build_text_encoder(model)}) {
    for (const Block& block : graph.blocks) {
      for (const Param& param : block.params) ours.insert(name_and_shape(param));
    }
  }
  EXPECT_EQ(ours.size(), 686u + 340u + 248u + 196u);
  EXPECT_THAT(missing_from(ours, theirs), IsEmpty()) << "theirs only";
  EXPECT_THAT(missing_from(theirs, ours), IsEmpty()) << "ours only";
}

}  // namespace
}  // namespace stagecraft
