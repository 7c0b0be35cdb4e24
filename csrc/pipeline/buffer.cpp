#include "pipeline/buffer.h"

#include <bit>
#include <cstdlib>
#include <new>

namespace fastshard::pipeline {
namespace {

constexpr size_t kAlignment = 64;

std::byte* allocate(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded < bytes) throw std::bad_alloc();
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded));
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void Buffer::reset() noexcept {
  if (data_ == nullptr) return;
  if (held_) {
    held_.reset();
  } else if (const std::shared_ptr<BufferPool> pool = pool_.lock()) {
    pool->give_back(data_, class_);
  } else {
    std::free(data_);
  }
  data_ = nullptr;
}

std::shared_ptr<BufferPool> BufferPool::make(size_t retain_bytes) {
  return std::shared_ptr<BufferPool>(new BufferPool(retain_bytes));
}

BufferPool::~BufferPool() {
  for (std::vector<std::byte*>& buffers : kept_) {
    for (std::byte* data : buffers) std::free(data);
  }
}

Buffer BufferPool::lease(size_t bytes) {
  const auto size_class = std::max(kSmallest, static_cast<unsigned>(std::bit_width(bytes == 0 ? 0 : bytes - 1)));
  if (size_class > kLargest) return {allocate(bytes), bytes, 0, {}};
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
  return {allocate(size_t{1} << size_class), bytes, size_class, weak_from_this()};
}

void BufferPool::give_back(std::byte* data, unsigned size_class) noexcept {
  const size_t bytes = size_t{1} << size_class;
  if (size_class != 0 && generation_ == fork_generation()) {
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
  std::free(data);
}

}  // namespace fastshard::pipeline
