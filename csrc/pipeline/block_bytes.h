// Bytes of one block as an engine reads them: some ranges of its file, aligned as its reads want it, in one memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "io/direct_file.h"
#include "ipc/codec.h"

namespace fastshard::pipeline {

struct FileRange {
  int64_t offset = 0;
  int64_t length = 0;
};

class BlockBytes {
 public:
  // One read. `got` is what came so far, from `first` on; it is whole when got >= wanted.
  struct Part {
    int64_t first = 0;   // offset in the file, a multiple of the alignment
    int64_t wanted = 0;  // bytes that must come
    int64_t place = 0;   // in the memory
    int64_t got = 0;
  };

  struct Rules {
    int64_t alignment = io::kDirectAlignment;  // of offsets, lengths and memory; a power of two
    int64_t gap = int64_t{64} << 10;  // ranges so close to each other are read as one: that is sooner than two reads
  };

  BlockBytes() = default;
  // Ranges of the file in any order; they may overlap. Takes no memory.
  BlockBytes(std::vector<FileRange> ranges, const Rules& rules);
  BlockBytes(BlockBytes&& other) noexcept = default;
  BlockBytes& operator=(BlockBytes&& other) noexcept = default;
  BlockBytes(const BlockBytes&) = delete;
  BlockBytes& operator=(const BlockBytes&) = delete;

  [[nodiscard]] std::vector<Part>& parts() noexcept { return parts_; }
  // The sum of what must come.
  [[nodiscard]] int64_t wanted() const noexcept { return wanted_; }
  [[nodiscard]] int64_t alignment() const noexcept { return alignment_; }
  // What the parts take in memory, whole multiples of the alignment.
  [[nodiscard]] int64_t memory_bytes() const noexcept { return memory_bytes_; }

  // Takes memory for all parts. Throws std::bad_alloc.
  void allocate();
  // The same with memory of another owner: memory_bytes(), aligned, alive until the last call.
  void place_at(std::byte* memory) noexcept { base_ = memory; }
  // Where the rest of a part goes on, in the file and in memory: at the last multiple of the alignment that came.
  [[nodiscard]] std::span<std::byte> rest(size_t part, int64_t& offset) noexcept;
  // `count` bytes more came of the rest of a part; false where it has no byte more than before.
  [[nodiscard]] bool add(size_t part, int64_t count) noexcept;
  // Bytes of the file that lie in one of the ranges that were asked for.
  [[nodiscard]] ByteSpan at(int64_t offset, int64_t length) const noexcept;

  // Of the memory that was allocated.
  [[nodiscard]] size_t size() const noexcept { return memory_.size(); }
  // This memory itself; what `at` returned stays good.
  [[nodiscard]] ipc::Storage release() noexcept;

 private:
  [[nodiscard]] int64_t round_down(int64_t bytes) const noexcept { return bytes & -alignment_; }
  [[nodiscard]] int64_t round_up(int64_t bytes) const noexcept { return round_down(bytes + alignment_ - 1); }

  std::vector<Part> parts_;
  int64_t alignment_ = io::kDirectAlignment;
  int64_t wanted_ = 0;
  int64_t memory_bytes_ = 0;
  std::byte* base_ = nullptr;
  ipc::Storage memory_;
};

}  // namespace fastshard::pipeline
