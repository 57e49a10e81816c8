// The files of this folder that a browser reads, as one text made when the library is built.
#pragma once

#include <string_view>

namespace stagecraft {

// page.html with its style sheet and scripts in place; `{{data}}` stands where the data goes.
std::string_view page_template();

}  // namespace stagecraft
