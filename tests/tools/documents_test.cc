// What the documents say can be run: the commands of README.md, the suites that docs/proof.md
// names.
#include <gmock/gmock.h>

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>

#include "tests/tools/audited_run.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The lines of all blocks of shell commands, but those that call the scripts in tools/:
// tools/test.sh runs this test.
std::string commands_of(const std::string& page) {
  std::istringstream lines(page);
  std::string commands;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = line == "```sh";
    } else if (inside && !line.starts_with("tools/")) {
      commands += line + '\n';
    }
  }
  return commands;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "README.md no longer has: " << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// In their order and as they stand there, but for the model's size.
class ReadmeLarge : public AuditedRun {
 protected:
  // The test's folder as a checkout that is built.
  void make_checkout() const {
    fs::create_directory_symlink(source("configs"), folder_.file("configs"));
    fs::create_directory_symlink(source("tools"), folder_.file("tools"));
    fs::create_directories(folder_.file("build/release"));
    fs::create_directory_symlink(STAGECRAFT_BIN_DIR, folder_.file("build/release/bin"));
    folder_.write(".venv/bin/python", "#!/bin/sh\nexec " STAGECRAFT_PYTHON " -B \"$@\"\n");
    fs::permissions(folder_.file(".venv/bin/python"), fs::perms::owner_all);
  }
};

TEST_F(ReadmeLarge, EveryCommandRuns) {
  make_checkout();
  write_train_file();
  std::string commands = commands_of(text_of(source("README.md")));
  const std::string config = "--config configs/train/sd15_controlnet.yaml ";
  replace_all(commands, config + "--precision fp32 --width 256 --height 256",
              "--config train.yaml");
  replace_all(commands, config + "\\\n  --weights", "--config train.yaml --weights");
  replace_all(commands, "FOLDER_OF_SD15", weights());
  replace_all(commands, "#    .venv/bin/python tools/make_fill50k.py data/circles --count 1000",
              ".venv/bin/python tools/make_fill50k.py data/circles --count 6 --size 64");
  replace_all(commands, "--out runs/first", "--out runs/first --steps 1");
  folder_.write("commands.sh", "set -euxo pipefail\n" + commands);
  const ProgramEnd end = run_program("cd " + folder_.path().string() + " && bash commands.sh");
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(end.out, HasSubstr("data parallel"));
  EXPECT_THAT(end.out, HasSubstr("verdict: all 2 step(s) are what diffusers"));
  EXPECT_TRUE(
      fs::exists(folder_.file("runs/first/controlnet/diffusion_pytorch_model.safetensors")));
}

class ProofPage : public AuditedRun {};

TEST_F(ProofPage, NamesSuitesThatExist) {
  std::string tests;
  for (const auto& entry : fs::recursive_directory_iterator(STAGECRAFT_SOURCE_DIR "/tests")) {
    if (entry.path().extension() == ".cc") tests += text_of(entry.path());
  }
  const std::string page = text_of(STAGECRAFT_SOURCE_DIR "/docs/proof.md");
  const std::regex suite("`([A-Z][a-zA-Z]+)`");
  int named = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), suite), end; it != end; ++it) {
    const std::string name = (*it)[1];
    const std::regex test(R"(TEST(_F|_P)?\()" + name + R"(\w*,)");
    EXPECT_TRUE(std::regex_search(tests, test)) << name;
    ++named;
  }
  EXPECT_GT(named, 30);
}

}  // namespace
}  // namespace stagecraft
