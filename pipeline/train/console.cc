#include "pipeline/train/console.h"

#include <unistd.h>

#include <cerrno>

namespace stagecraft {

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace stagecraft
