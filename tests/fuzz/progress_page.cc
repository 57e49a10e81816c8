// The page of shared memory that a rank leaves behind, whatever it wrote there.
#include "pipeline/launch/progress_page.h"

#include <unistd.h>

#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_progress_page(std::string_view input) {
  const Descriptor memory = ProgressPage::make_memory();
  const off_t size = ::lseek(memory.get(), 0, SEEK_END);
  const size_t bytes = std::min(input.size(), static_cast<size_t>(size));
  require(::pwrite(memory.get(), input.data(), bytes, 0) == static_cast<ssize_t>(bytes),
          "the page takes the input");
  const ProgressSnapshot snapshot = ProgressPage(memory.get()).read();
  require(snapshot.operation.size() <= 24, "an operation's name is short");
  require(snapshot.error_text.size() < static_cast<size_t>(size), "a text is inside the page");
  require(!section_name(snapshot.section).empty(), "every section has a name");
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(progress_page)
}  // namespace stagecraft::fuzz
