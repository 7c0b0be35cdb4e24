#include "pipeline/buffer.h"

#include <bit>
#include <new>

#include "base/memory.h"

namespace fastshard::pipeline {
namespace {

constexpr size_t kAlignment = 64;

// Of a buffer's memory: its class, where it has one, or else what was asked for.
size_t bytes_of(size_t size, unsigned size_class) { return size_class == 0 ? size : size_t{1} << size_class; }

}  // namespace

void Buffer::reset() noexcept {
  if (data_ == nullptr) return;
  if (held_) {
    held_.reset();
  } else if (const std::shared_ptr<BufferPool> pool = pool_.lock()) {
    pool->give_back(data_, class_);
  } else {
    give_memory(data_, bytes_of(size_, class_));
  }
  data_ = nullptr;
}

std::shared_ptr<BufferPool> BufferPool::make(size_t retain_bytes) {
  return std::shared_ptr<BufferPool>(new BufferPool(retain_bytes));
}

BufferPool::~BufferPool() {
  for (size_t size_class = 0; size_class < kept_.size(); ++size_class) {
    for (std::byte* data : kept_[size_class]) give_memory(data, size_t{1} << size_class);
  }
}

Buffer BufferPool::lease(size_t bytes) {
  const auto size_class = std::max(kSmallest, static_cast<unsigned>(std::bit_width(bytes == 0 ? 0 : bytes - 1)));
  if (size_class > kLargest) return {take_memory(bytes, kAlignment), bytes, 0, {}};
  {
    const std::lock_guard lock(mutex_);
    if (std::vector<std::byte*>& kept = kept_[size_class]; !kept.empty()) {
      std::byte* const data = kept.back();
      kept.pop_back();
      kept_bytes_ -= size_t{1} << size_class;
      return {data, bytes, size_class, weak_from_this()};
    }
    ++fresh_;
  }
  return {take_memory(size_t{1} << size_class, kAlignment), bytes, size_class, weak_from_this()};
}

void BufferPool::give_back(std::byte* data, unsigned size_class) noexcept {
  const size_t bytes = size_t{1} << size_class;
  if (generation_ == fork_generation()) {
    const std::lock_guard lock(mutex_);
    if (kept_bytes_ + bytes <= retain_bytes_) {
      try {
        kept_[size_class].push_back(data);
        kept_bytes_ += bytes;
        return;
      } catch (const std::bad_alloc&) {
        // No memory for the list: free the buffer instead.
      }
    }
  }
  give_memory(data, bytes);
}

}  // namespace fastshard::pipeline
