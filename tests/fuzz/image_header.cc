// The container of a picture, which no decoder has seen yet.
#include "pipeline/dataset/image_header.h"

#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_image_header(std::string_view input) {
  try {
    const ImageHeader header = read_image_header(input);
    require(header.width > 0 && header.height > 0 && header.width <= kMaxPixels / header.height,
            "a picture has 1 to 64 million pixels");
  } catch (const InputError& error) {
    accept(error, {ExitCode::kDataInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(image_header)
}  // namespace stagecraft::fuzz
