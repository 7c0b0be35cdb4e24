// What a fork means for native state: locks that another thread held stay locked in the child, threads are gone, memory
// and mappings are as they were. Whoever owns locks or threads remembers the generation in which they were made, and
// leaves them alone in a later one.
#pragma once

#include <cstdint>

namespace fastshard {

// Counts the forks between this process and the one that loaded the library.
[[nodiscard]] uint64_t fork_generation() noexcept;

// Counts the forks that this process began: what it held when the count was lower, a child may hold as well.
[[nodiscard]] uint64_t forks_begun() noexcept;

}  // namespace fastshard
