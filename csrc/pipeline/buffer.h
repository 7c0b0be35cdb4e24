// Memory of batches. A pool keeps what was returned for the next batch: fresh memory costs a page fault per 4 KiB, more
// than the copy into it. Buffers are 64-byte aligned, their contents undefined until written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork.h"

namespace fastshard::pipeline {

class BufferPool;

// Owns its bytes; gives them back to the pool, if that still lives, or lets go of the larger memory that they lie in.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        class_(other.class_),
        pool_(std::move(other.pool_)),
        held_(std::move(other.held_)) {}
  // Bytes of a larger memory, which lives as long as `held`.
  Buffer(std::byte* data, size_t size, std::shared_ptr<void> held) noexcept
      : data_(data), size_(size), held_(std::move(held)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
      class_ = other.class_;
      pool_ = std::move(other.pool_);
      held_ = std::move(other.held_);
    }
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }

 private:
  friend class BufferPool;
  Buffer(std::byte* data, size_t size, unsigned size_class, std::weak_ptr<BufferPool> pool)
      : data_(data), size_(size), class_(size_class), pool_(std::move(pool)) {}
  void reset() noexcept;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  unsigned class_ = 0;
  std::weak_ptr<BufferPool> pool_;
  std::shared_ptr<void> held_;
};

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // Keeps at most `retain_bytes` of returned memory.
  [[nodiscard]] static std::shared_ptr<BufferPool> make(size_t retain_bytes);
  virtual ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Throws std::bad_alloc.
  [[nodiscard]] virtual Buffer lease(size_t bytes);
  // Allocations that the pool could not serve from what it kept; for tests.
  [[nodiscard]] size_t fresh_allocations() const noexcept { return fresh_; }

 protected:
  explicit BufferPool(size_t retain_bytes) : retain_bytes_(retain_bytes), generation_(fork_generation()) {}

 private:
  friend class Buffer;
  static constexpr unsigned kSmallest = 12;  // 4 KiB
  static constexpr unsigned kLargest = 26;   // 64 MiB; larger buffers are never kept
  void give_back(std::byte* data, unsigned size_class) noexcept;

  const size_t retain_bytes_;
  const uint64_t generation_;  // a pool from before a fork takes nothing back: its mutex may be locked for ever
  std::mutex mutex_;
  size_t kept_bytes_ = 0;
  size_t fresh_ = 0;
  std::array<std::vector<std::byte*>, kLargest + 1> kept_;
};

}  // namespace fastshard::pipeline
