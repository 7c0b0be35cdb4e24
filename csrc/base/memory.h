// Memory of blocks and batches. Large pieces are mappings of their own, which go back to the system when they are
// freed: malloc would keep them in the free lists of its arenas, one for each thread, so that a process would seem to
// grow with every loader it makes. A few are kept for the next of the same size, since fresh pages cost more than what
// is written to them, and let go when no large piece is in use.
#pragma once

#include <cstddef>

namespace fastshard {

// Uninitialised bytes, aligned as said (a power of two, at most the size of a page). Throws std::bad_alloc.
[[nodiscard]] std::byte* take_memory(size_t bytes, size_t alignment);
// What `take_memory(bytes, ...)` returned, or null.
void give_memory(std::byte* data, size_t bytes) noexcept;
// Bytes that were taken and not given back; for tests.
[[nodiscard]] size_t memory_taken() noexcept;

}  // namespace fastshard
