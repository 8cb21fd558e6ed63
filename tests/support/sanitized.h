#pragma once

namespace chiron::tests {

/// Sanitizers take memory and time of their own, and count what a program allocates: what is measured under them says
/// nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr const char* kWhySkipped = "sanitizers take memory and time of their own";

}  // namespace chiron::tests
