// A saved cost table.
#include "partitioner/cost/cost_table.h"

#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_cost_table(std::string_view input) {
  CostTable table;
  try {
    table = read_cost_table(folder().write("costs.json", input));
  } catch (const InputError& error) {
    return accept(error, {ExitCode::kDataInvalid});
  }
  if (input.size() > kMostReadBack) return;
  require(read_cost_table(folder().write("again.json", to_json(table))) == table,
          "a cost table reads back as it was written");
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(cost_table)
}  // namespace stagecraft::fuzz
