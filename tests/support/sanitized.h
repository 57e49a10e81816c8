// Bounds that the fault contract promises, stretched where sanitizers watch. STAGECRAFT_SANITIZED
// is defined there.
#pragma once

namespace stagecraft {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // g++
#define STAGECRAFT_SANITIZED
#elif defined(__has_feature)  // clang++
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STAGECRAFT_SANITIZED
#endif
#endif

#ifdef STAGECRAFT_SANITIZED
inline constexpr int kSlower = 5;
#else
inline constexpr int kSlower = 1;
#endif

}  // namespace stagecraft
