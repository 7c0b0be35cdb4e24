// Memory of blocks that are let go, for the blocks that come next: they are mostly of one size, and fresh memory costs
// a page fault and zeros for each page, more than a drive's read costs the CPU. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "ipc/codec.h"

namespace fastshard::pipeline {

class SpareMemory {
 public:
  // Keeps at most `most` bytes.
  explicit SpareMemory(size_t most) : most_(most) {}

  // Of exactly that size, or nothing.
  [[nodiscard]] ipc::Storage take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(kept_.rbegin(), kept_.rend(), [&](const ipc::Storage& one) { return one.size() == bytes; });
    if (found == kept_.rend()) return {};
    std::swap(*found, kept_.back());
    ipc::Storage storage = std::move(kept_.back());
    kept_.pop_back();
    bytes_ -= bytes;
    return storage;
  }

  void give(ipc::Storage storage) noexcept {
    if (storage.size() == 0) return;
    const std::lock_guard lock(mutex_);
    try {
      kept_.push_back(std::move(storage));
    } catch (const std::bad_alloc&) {
      return;
    }
    bytes_ += kept_.back().size();
    for (; bytes_ > most_; kept_.erase(kept_.begin())) bytes_ -= kept_.front().size();
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  size_t bytes_ = 0;
  std::vector<ipc::Storage> kept_;  // the last one given is the first one taken: it is in the cache
};

}  // namespace fastshard::pipeline
