// Bounds that the fault contract promises, stretched where sanitizers watch.
#pragma once

namespace stagecraft {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // g++
inline constexpr int kSlower = 5;
#elif defined(__has_feature)  // clang++
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr int kSlower = 5;
#else
inline constexpr int kSlower = 1;
#endif
#else
inline constexpr int kSlower = 1;
#endif

}  // namespace stagecraft
