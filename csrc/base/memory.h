// Memory of blocks and batches. Large pieces are parts of regions that begin with a huge page and that the system is
// asked to give huge pages to: direct reads into these are several times as fast as into small pages (a read of a
// megabyte is then one segment, not 256), and rows at random places miss the TLB less often. Regions go back to the
// system when nothing of them is in use; malloc would keep the pieces in the free lists of its arenas, one for each
// thread, so that a process would seem to grow with every loader it makes. Huge pages that hold nothing stay up to some
// 32 MiB, since fresh ones cost more than what is written to them; none stay when no large piece is in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace fastshard {

// Uninitialised bytes, aligned as said (a power of two, at most the size of a page). Throws std::bad_alloc.
[[nodiscard]] std::byte* take_memory(size_t bytes, size_t alignment);
// What `take_memory(bytes, ...)` returned, or null.
void give_memory(std::byte* data, size_t bytes) noexcept;

// Keeps a region where it is, pages and all, also while nothing of it is in use: for a kernel that knows its pages.
class PinnedRegion {
 public:
  PinnedRegion(std::span<std::byte> bytes, uint64_t generation) noexcept : bytes_(bytes), generation_(generation) {}
  PinnedRegion(PinnedRegion&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})), generation_(other.generation_) {}
  PinnedRegion& operator=(PinnedRegion&&) = delete;
  ~PinnedRegion();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
  uint64_t generation_;  // of the process, by forks
};

// The region in which the piece lies that holds the byte; none where it is no large piece, or has a mapping of its own.
[[nodiscard]] std::optional<PinnedRegion> pin_region(const std::byte* data);

// Bytes that were taken and not given back; for tests.
[[nodiscard]] size_t memory_taken() noexcept;
// Bytes of address space that regions take; for tests.
[[nodiscard]] size_t memory_mapped() noexcept;

}  // namespace fastshard
