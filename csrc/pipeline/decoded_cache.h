// Decompressed columns of blocks, the least recently used leaving first. Thread-safe.
//
// What is kept can be used without taking a reference to each: while a `Reader` lives nothing leaves. A column that is
// to be kept waits for the readers that are there.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ipc/array_view.h"
#include "pipeline/stage_times.h"

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

  // Holds the cache as it is, or (made without one, or let go) nothing. Its thread calls `find_or_load` only when it
  // holds nothing.
  class Reader {
   public:
    Reader() = default;
    explicit Reader(DecodedCache& cache) : cache_(&cache), lock_(cache.mutex_), now_(cache.tick()) {}
    // What is kept under `key`, or null; until this lets go.
    [[nodiscard]] const ipc::LoadedColumn* find(const Key& key) const {
      const auto found = cache_->entries_.find(key);
      if (found == cache_->entries_.end()) return nullptr;
      found->second.used.store(now_, std::memory_order_relaxed);
      return found->second.column.get();
    }
    void let_go() {
      if (lock_.owns_lock()) lock_.unlock();
    }

   private:
    const DecodedCache* cache_ = nullptr;
    std::shared_lock<std::shared_mutex> lock_;
    uint64_t now_ = 0;
  };

  explicit DecodedCache(size_t budget_bytes) : budget_(budget_bytes) {}

  // The column that is kept under `key`, or what `load` makes of it: a pair of a ColumnRef and its bytes. Of several
  // threads that want it at once, one loads and the others wait; where it fails they try for themselves.
  template <typename Load>
  [[nodiscard]] ColumnRef find_or_load(const Key& key, Load&& load) {
    if (ColumnRef column = find(key)) return column;
    {
      std::unique_lock lock(loading_mutex_);
      while (!loading_.insert(key).second) {
        const StageClock clock(stage_times().decode_ns);
        loaded_.wait(lock);
      }
    }
    const Loading mark(*this, key);
    if (ColumnRef column = find(key)) return column;  // somebody loaded it meanwhile
    ColumnRef column;
    size_t bytes = 0;
    std::tie(column, bytes) = load();
    keep(key, column, bytes);
    return column;
  }

  // Whether some thread is loading it just now.
  [[nodiscard]] bool is_loading(const Key& key) {
    if (loads_.load(std::memory_order_relaxed) == 0) return false;
    const std::lock_guard lock(loading_mutex_);
    return loading_.contains(key);
  }
  // Nothing was ever kept.
  [[nodiscard]] bool unused() const noexcept { return unused_.load(std::memory_order_relaxed); }
  [[nodiscard]] size_t held_bytes() {
    const std::shared_lock lock(mutex_);
    return held_;
  }
  [[nodiscard]] size_t budget() const noexcept { return budget_; }

 private:
  struct Entry {
    Entry(ColumnRef loaded, size_t size, uint64_t now) : column(std::move(loaded)), bytes(size), used(now) {}
    ColumnRef column;
    size_t bytes;
    mutable std::atomic<uint64_t> used;  // by the clock
  };
  struct Hash {
    size_t operator()(const Key& key) const noexcept {
      const uint64_t mixed = ((uint64_t{key.shard} << 32) | key.block) * 0x9E3779B97F4A7C15ULL + key.column;
      return static_cast<size_t>(mixed ^ (mixed >> 29));
    }
  };
  // A key is in loading_ as long as this lives.
  class Loading {
   public:
    Loading(DecodedCache& cache, const Key& key) : cache_(cache), key_(key) { ++cache_.loads_; }
    ~Loading() {
      --cache_.loads_;
      {
        const std::lock_guard lock(cache_.loading_mutex_);
        cache_.loading_.erase(key_);
      }
      cache_.loaded_.notify_all();
    }
    Loading(const Loading&) = delete;
    Loading& operator=(const Loading&) = delete;

   private:
    DecodedCache& cache_;
    const Key key_;
  };

  [[nodiscard]] uint64_t tick() noexcept { return clock_.fetch_add(1, std::memory_order_relaxed); }

  [[nodiscard]] ColumnRef find(const Key& key) {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    found->second.used.store(tick(), std::memory_order_relaxed);
    return found->second.column;
  }

  // Keeps `column` while the budget allows; one larger than the budget is not kept.
  void keep(const Key& key, const ColumnRef& column, size_t bytes) {
    if (bytes > budget_) return;
    std::vector<ColumnRef> gone;  // freed when the lock is
    const std::lock_guard lock(mutex_);
    if (!entries_.try_emplace(key, column, bytes, tick()).second) return;
    unused_.store(false, std::memory_order_relaxed);
    held_ += bytes;
    while (held_ > budget_) {
      const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
        return a.second.used.load(std::memory_order_relaxed) < b.second.used.load(std::memory_order_relaxed);
      });
      held_ -= oldest->second.bytes;
      gone.push_back(std::move(oldest->second.column));
      entries_.erase(oldest);
    }
  }

  const size_t budget_;
  std::shared_mutex mutex_;  // of entries_ and held_
  size_t held_ = 0;
  std::unordered_map<Key, Entry, Hash> entries_;
  std::atomic<uint64_t> clock_{0};
  std::atomic<bool> unused_{true};
  std::mutex loading_mutex_;
  std::unordered_set<Key, Hash> loading_;
  std::atomic<uint32_t> loads_{0};
  std::condition_variable loaded_;
};

}  // namespace fastshard::pipeline
