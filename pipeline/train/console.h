// Lines for the person who watches. Standard output may be closed (`| head`): that ends no
// training.
#pragma once

#include <string_view>

namespace stagecraft {

// Writes `text` as it is, at once; errors are ignored. Any thread.
void say(std::string_view text);

}  // namespace stagecraft
