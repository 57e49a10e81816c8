#include "partitioner/base/descriptor.h"

#include <unistd.h>

#include <cerrno>

namespace stagecraft {

int Descriptor::close() { return ::close(release()) == 0 ? 0 : errno; }

void Descriptor::reset() {
  if (fd_ < 0) return;
  const int kept = errno;
  close();
  errno = kept;
}

}  // namespace stagecraft
