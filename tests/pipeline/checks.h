// The checks of the suite, as functions: each is run by the tests of the file that defines it, and
// by mistakes_test.cc under every deliberate mistake. They fail by gtest's assertions.
#pragma once

#include "tests/support/trainable_choices.h"

namespace stagecraft {

// Pipelines of several stages train to the bits of one stage (bitwise_test.cc).
void check_same_bits_as_one_stage(const TrainableChoice& choice);
// A parameter without a path to the loss keeps its bits, weight decay or not (bitwise_test.cc).
void check_none_gradients();
// Gradients have the bits of a fold written out by hand (fold_test.cc).
void check_fold_order(const TrainableChoice& choice);
// Gradients against one backward call on one graph: of the same micro-batches, of one full batch
// (single_device_test.cc).
void check_gradients_of_one_graph(const TrainableChoice& choice);
void check_gradients_of_one_batch(const TrainableChoice& choice);
// Losses, norms and weights over several steps against LibTorch's own optimizer and clipping
// (single_device_test.cc).
void check_training_with_stock_optimizer(const TrainableChoice& choice, int steps,
                                         double learning_rate);

}  // namespace stagecraft
