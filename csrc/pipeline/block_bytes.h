// Bytes of one block as an engine reads them: some ranges of its file, aligned as direct reads want it, in one memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
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
    int64_t first = 0;   // offset in the file, a multiple of io::kDirectAlignment
    int64_t wanted = 0;  // bytes that must come
    int64_t place = 0;   // in the memory
    int64_t got = 0;
  };

  // Ranges that are so close to each other are read as one: reading what is between them is sooner than another read.
  static constexpr int64_t kGap = int64_t{64} << 10;

  BlockBytes() = default;
  // Ranges of the file in any order; they may overlap. Takes no memory.
  explicit BlockBytes(std::vector<FileRange> ranges);

  [[nodiscard]] std::vector<Part>& parts() noexcept { return parts_; }
  // The sum of what must come.
  [[nodiscard]] int64_t wanted() const noexcept { return wanted_; }

  // Takes memory for all parts. Throws std::bad_alloc.
  void allocate();
  // Where the rest of a part goes on, in the file and in memory: at the last multiple of the alignment that came.
  [[nodiscard]] std::span<std::byte> rest(size_t part, int64_t& offset) noexcept;
  // Bytes of the file that lie in one of the ranges that were asked for.
  [[nodiscard]] ByteSpan at(int64_t offset, int64_t length) const noexcept;

  [[nodiscard]] size_t size() const noexcept { return memory_.size(); }
  // The memory itself; what `at` returned stays good.
  [[nodiscard]] ipc::Storage release() noexcept;

 private:
  std::vector<Part> parts_;
  int64_t wanted_ = 0;
  int64_t memory_bytes_ = 0;
  ipc::Storage memory_;
};

}  // namespace fastshard::pipeline
