#include "pipeline/block_bytes.h"

#include <algorithm>
#include <utility>

namespace fastshard::pipeline {

BlockBytes::BlockBytes(std::vector<FileRange> ranges, const Rules& rules) : alignment_(rules.alignment) {
  std::sort(ranges.begin(), ranges.end(), [](const FileRange& a, const FileRange& b) { return a.offset < b.offset; });
  for (const FileRange& range : ranges) {
    if (range.length == 0) continue;
    const int64_t end = range.offset + range.length;
    if (!parts_.empty() && round_down(range.offset) - (parts_.back().first + parts_.back().wanted) <= rules.gap) {
      parts_.back().wanted = std::max(parts_.back().wanted, end - parts_.back().first);
    } else {
      const int64_t first = round_down(range.offset);
      parts_.push_back({first, end - first});
    }
  }
  for (Part& part : parts_) {
    part.place = memory_bytes_;
    memory_bytes_ += round_up(part.wanted);
    wanted_ += part.wanted;
  }
}

void BlockBytes::allocate() {
  if (memory_bytes_ == 0) return;
  memory_ = ipc::Storage(static_cast<size_t>(memory_bytes_), static_cast<size_t>(io::kDirectAlignment));
  base_ = memory_.data();
}

std::span<std::byte> BlockBytes::rest(size_t index, int64_t& offset) noexcept {
  const Part& part = parts_[index];
  const int64_t done = round_down(part.got);
  offset = part.first + done;
  return {base_ + part.place + done, static_cast<size_t>(round_up(part.wanted) - done)};
}

bool BlockBytes::add(size_t index, int64_t count) noexcept {
  Part& part = parts_[index];
  const int64_t before = part.got;
  part.got = round_down(before) + count;
  return part.got > before;
}

ByteSpan BlockBytes::at(int64_t offset, int64_t length) const noexcept {
  if (length == 0) return {};
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), offset,
                                      [](int64_t value, const Part& part) { return value < part.first; });
  const Part& part = *(after - 1);
  return {base_ + part.place + offset - part.first, static_cast<size_t>(length)};
}

ipc::Storage BlockBytes::release() noexcept { return std::move(memory_); }

}  // namespace fastshard::pipeline
