#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define FASTSHARD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FASTSHARD_ASAN 1
#endif
#endif

namespace fastshard {
namespace {

// AddressSanitizer watches the ends of what malloc gave, not those of mappings.
#ifdef FASTSHARD_ASAN
constexpr size_t kMapped = std::numeric_limits<size_t>::max();
#else
constexpr size_t kMapped = size_t{128} << 10;
#endif

std::atomic<size_t> taken{0};

}  // namespace

std::byte* take_memory(size_t bytes, size_t alignment) {
  void* data = nullptr;
  if (bytes >= kMapped) {
    data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) data = nullptr;
  } else {
    data = std::aligned_alloc(alignment, (std::max(bytes, size_t{1}) + alignment - 1) / alignment * alignment);
  }
  if (data == nullptr) throw std::bad_alloc();
  taken.fetch_add(bytes, std::memory_order_relaxed);
  return static_cast<std::byte*>(data);
}

void give_memory(std::byte* data, size_t bytes) noexcept {
  if (data == nullptr) return;
  taken.fetch_sub(bytes, std::memory_order_relaxed);
  if (bytes >= kMapped) {
    ::munmap(data, bytes);
  } else {
    std::free(data);
  }
}

size_t memory_taken() noexcept { return taken.load(std::memory_order_relaxed); }

}  // namespace fastshard
