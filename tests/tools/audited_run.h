// An audited training of the tiny model in real processes, and tools/audit.py over it.
//
// Weights (drawn by diffusers, nothing zero), pictures, vocabulary and the filled cache are made
// once for all tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/made_once.h"
#include "tests/support/programs.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace stagecraft {

// The suites' base: every test has its own folder.
class AuditedRun : public ::testing::Test {
 protected:
  static std::string source(const std::string& path) { return STAGECRAFT_SOURCE_DIR "/" + path; }

  // weights/ and data/.
  static std::string inputs() {
    static const std::string folder = made_once("audit_inputs", [](const std::string& out) {
      must_run(python_command("tests/python/save_weights.py", {kTinyModelFile, out + "/weights"}));
      must_run(python_command("tools/make_clip_vocab.py", {out + "/weights/tokenizer"}));
      must_run(python_command("tools/make_fill50k.py",
                              {out + "/data", "--count", "12", "--size", "128"}));
    });
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
                                            kTinyModelFile, clip_));
  }

  // A plan, and the training file it is made from.
  std::string plan_for(int stages, const std::string& flags = "") const {
    write_train_file();
    const std::string plan = folder_.file("plan.yaml");
    const ProgramEnd made =
        run_program(fmt::format("{}/partition --config {} --cluster {} --stages {} {} -o {}",
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
    return run_program(train_command(plan, out, flags));
  }

  ProgramEnd audit(const std::string& flags) const {
    return run_program(python_command("tools/audit.py", {folder_.file("audit"), "--weights",
                                                         weights(), "--threads", "1"}) +
                       " " + flags);
  }

  TempFolder folder_;
  // Between the gradient norms of the steps, so that some are clipped.
  double clip_ = 30;
};

}  // namespace stagecraft
