// The lines of a data set.
#include "pipeline/dataset/dataset.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_prompt_json(std::string_view input) {
  folder().write("prompt.json", input);
  const Dataset dataset = read_dataset(folder().path().string());
  for (const SampleFiles& sample : dataset.samples) {
    require(!first_invalid_utf8(sample.caption), "a caption is UTF-8");
    try {
      const DataFile file = find_data_file(dataset, sample.source);
      require(file.path.starts_with(dataset.folder + "/"), "a picture is inside the folder");
    } catch (const InputError& error) {
      accept(error, {ExitCode::kDataInvalid});
    }
  }
  try {
    require_valid(dataset, 1);
  } catch (const InputError& error) {
    accept(error, {ExitCode::kDataInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(prompt_json)
}  // namespace stagecraft::fuzz
