// Which columns of which blocks were compared with their hashes. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace fastshard::pipeline {

enum class Verify {
  kNever,
  kOnce,    // a column of a block when its bytes are used for the first time
  kAlways,  // whenever they are read, decompressed, or gathered from a mapping
};

class CheckedColumns {
 public:
  explicit CheckedColumns(size_t columns) : columns_(columns) {}

  [[nodiscard]] bool contains(uint32_t shard, size_t block, size_t column) const {
    const std::lock_guard lock(mutex_);
    const auto found = shards_.find(shard);
    const size_t bit = block * columns_ + column;
    return found != shards_.end() && bit < found->second.size() && found->second[bit];
  }
  void insert(uint32_t shard, size_t block, size_t column) {
    const std::lock_guard lock(mutex_);
    std::vector<bool>& bits = shards_[shard];
    if (bits.size() < (block + 1) * columns_) bits.resize((block + 1) * columns_);
    bits[block * columns_ + column] = true;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    shards_.clear();
  }

 private:
  const size_t columns_;
  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, std::vector<bool>> shards_;
};

}  // namespace fastshard::pipeline
