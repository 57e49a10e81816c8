// An audited training of the tiny model in real processes, and tools/audit.py over it.
//
// Weights (drawn by diffusers, nothing zero), pictures, vocabulary and the filled cache are made
// once for all tests, in the build tree under a key of the scripts that make them.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "partitioner/base/sha256.h"
#include "tests/support/programs.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {

struct ProgramEnd {
  int code = -1;
  std::string out, err;
};

// The suites' base: every test has its own folder.
class AuditedRun : public ::testing::Test {
 protected:
  static std::string source(const std::string& path) { return STAGECRAFT_SOURCE_DIR "/" + path; }

  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  ProgramEnd run(const std::string& command) const {
    const std::string out = folder_.file("stdout"), err = folder_.file("stderr");
    const int code = shell(fmt::format("{} >{} 2>{}", command, out, err));
    return {.code = code, .out = text_of(out), .err = text_of(err)};
  }

  // weights/ and data/.
  static std::string inputs() {
    static const std::string folder = make_inputs();
    return folder;
  }

  static std::string weights() { return inputs() + "/weights"; }

  // Three samples in two uneven micro-batches.
  void write_train_file() const {
    folder_.write("train.yaml", fmt::format("model: {}\n"
                                            "width: 64\nheight: 64\nprecision: fp32\n"
                                            "batch: 3\nmicro_batch: 2\n"
                                            "optimizer:\n  learning_rate: 1.0e-5\n"
                                            "  warmup_steps: 5\n  max_grad_norm: {}\n",
                                            model(), clip_));
  }

  // A plan, and the training file it is made from.
  std::string plan_for(int stages, const std::string& flags = "") const {
    write_train_file();
    const std::string plan = folder_.file("plan.yaml");
    const ProgramEnd made =
        run(fmt::format("{}/partition --config {} --cluster {} --stages {} {} -o {}",
                        STAGECRAFT_BIN_DIR, folder_.file("train.yaml"),
                        source("configs/clusters/local_cpu_4.yaml"), stages, flags, plan));
    EXPECT_EQ(made.code, 0) << made.err;
    return plan;
  }

  std::string train_command(const std::string& plan, const std::string& out,
                            const std::string& flags) const {
    return fmt::format("{}/pipetrain --plan {} --config {} --weights {} --data {}/data --out {} {}",
                       STAGECRAFT_BIN_DIR, plan, folder_.file("train.yaml"), weights(), inputs(),
                       folder_.file(out), flags);
  }
  ProgramEnd train(const std::string& plan, const std::string& out,
                   const std::string& flags) const {
    return run(train_command(plan, out, flags));
  }

  ProgramEnd audit(const std::string& flags) const {
    return run(fmt::format("{} -B {} {} --weights {} --threads 1 {}", STAGECRAFT_PYTHON,
                           source("tools/audit.py"), folder_.file("audit"), weights(), flags));
  }

  TempFolder folder_;
  // Between the gradient norms of the steps, so that some are clipped.
  double clip_ = 30;

 private:
  static std::string model() { return source("configs/models/sd15_controlnet_tiny.yaml"); }

  static void must_run(const std::string& command) {
    if (shell(command + " >/dev/null") != 0) throw std::runtime_error("failed: " + command);
  }

  static std::string make_inputs() {
    namespace fs = std::filesystem;
    const std::string python = std::string(STAGECRAFT_PYTHON) + " -B ";
    std::string key;
    for (const char* file : {"tests/python/save_weights.py", "tests/python/make_reference.py",
                             "tools/make_fill50k.py", "tools/make_clip_vocab.py"}) {
      key += sha256_hex_of_file(source(file));
    }
    key = sha256_hex(key + sha256_hex_of_file(model())).substr(0, 16);
    const fs::path parent = STAGECRAFT_BIN_DIR "/../audit_inputs", folder = parent / key;
    fs::create_directories(parent);
    const int lock = ::open((parent / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (lock < 0 || ::flock(lock, LOCK_EX) != 0) throw std::runtime_error("no lock");
    if (!fs::exists(folder)) {
      for (const auto& old : fs::directory_iterator(parent)) {
        if (old.is_directory()) fs::remove_all(old);
      }
      const std::string partial = folder.string() + ".partial";
      must_run(fmt::format("{}{} {} {}/weights 2>/dev/null", python,
                           source("tests/python/save_weights.py"), model(), partial));
      must_run(fmt::format("{}{} {}/weights/tokenizer", python, source("tools/make_clip_vocab.py"),
                           partial));
      must_run(fmt::format("{}{} {}/data --count 12 --size 128", python,
                           source("tools/make_fill50k.py"), partial));
      fs::rename(partial, folder);
    }
    ::close(lock);
    return folder.string();
  }
};

}  // namespace stagecraft
