// Decompressed columns of blocks, the least recently used leaving first. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ipc/array_view.h"

namespace fastshard::pipeline {

using ColumnRef = std::shared_ptr<const ipc::LoadedColumn>;

class DecodedCache {
 public:
  struct Key {
    uint32_t shard = 0;
    uint32_t block = 0;
    uint32_t column = 0;
    bool operator==(const Key&) const = default;
  };

  explicit DecodedCache(size_t budget_bytes) : budget_(budget_bytes) {}

  // The column that is kept under `key`, or what `load` makes of it: a pair of a ColumnRef and its bytes. Of several
  // threads that want it at once, one loads and the others wait; where it fails they try for themselves.
  template <typename Load>
  [[nodiscard]] ColumnRef find_or_load(const Key& key, Load&& load) {
    {
      std::unique_lock lock(mutex_);
      for (;;) {
        const auto found = entries_.find(key);
        if (found != entries_.end()) {
          order_.splice(order_.begin(), order_, found->second);
          return found->second->column;
        }
        if (loading_.insert(key).second) break;
        loaded_.wait(lock);
      }
    }
    ColumnRef column;
    try {
      size_t bytes = 0;
      std::tie(column, bytes) = load();
      const std::lock_guard lock(mutex_);
      loading_.erase(key);
      keep(key, column, bytes);
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        loading_.erase(key);
      }
      loaded_.notify_all();
      throw;
    }
    loaded_.notify_all();
    return column;
  }

  [[nodiscard]] size_t held_bytes() {
    const std::lock_guard lock(mutex_);
    return held_;
  }
  [[nodiscard]] size_t budget() const noexcept { return budget_; }

 private:
  // Under the mutex. Keeps `column` while the budget allows; one larger than the budget is not kept.
  void keep(const Key& key, ColumnRef column, size_t bytes) {
    if (bytes > budget_ || entries_.contains(key)) return;
    order_.push_front({key, std::move(column), bytes});
    entries_.emplace(key, order_.begin());
    held_ += bytes;
    while (held_ > budget_) {
      held_ -= order_.back().bytes;
      entries_.erase(order_.back().key);
      order_.pop_back();
    }
  }

  struct Entry {
    Key key;
    ColumnRef column;
    size_t bytes;
  };
  struct Hash {
    size_t operator()(const Key& key) const noexcept {
      const uint64_t mixed = ((uint64_t{key.shard} << 32) | key.block) * 0x9E3779B97F4A7C15ULL + key.column;
      return static_cast<size_t>(mixed ^ (mixed >> 29));
    }
  };

  const size_t budget_;
  std::mutex mutex_;
  size_t held_ = 0;
  std::list<Entry> order_;
  std::unordered_map<Key, std::list<Entry>::iterator, Hash> entries_;
  std::unordered_set<Key, Hash> loading_;
  std::condition_variable loaded_;
};

}  // namespace fastshard::pipeline
