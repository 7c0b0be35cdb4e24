#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>

#include "base/fork.h"

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
constexpr size_t kMost = std::numeric_limits<size_t>::max() / 2;
constexpr size_t kKeptBytes = size_t{32} << 20;

// Rounded up to one of eight sizes between two powers of two, so that pieces of about one size serve each other.
size_t mapped_size(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

struct Piece {
  void* data = nullptr;
  size_t bytes = 0;
};

// Freed mappings, those of before a fork apart: its lock may be held for ever, and the memory is the parent's.
class Kept {
 public:
  [[nodiscard]] static Kept& of_process() {
    static std::atomic<Kept*> current{nullptr};
    Kept* found = current.load(std::memory_order_acquire);
    while (found == nullptr || found->generation_ != fork_generation()) {
      auto* const fresh = new Kept();  // lives as long as the process
      if (current.compare_exchange_strong(found, fresh, std::memory_order_acq_rel)) return *fresh;
      delete fresh;
    }
    return *found;
  }

  // Null where none of the size is kept.
  [[nodiscard]] void* take(size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    ++in_use_;
    for (size_t i = count_; i > 0; --i) {
      if (pieces_[i - 1].bytes != bytes) continue;
      void* const data = pieces_[i - 1].data;
      std::move(pieces_.begin() + static_cast<ptrdiff_t>(i), pieces_.begin() + static_cast<ptrdiff_t>(count_),
                pieces_.begin() + static_cast<ptrdiff_t>(i - 1));
      --count_;
      held_ -= bytes;
      return data;
    }
    return nullptr;
  }

  void put(Piece piece) noexcept {
    std::array<Piece, kPieces + 1> leaving;
    size_t count = 0;
    {
      const std::lock_guard lock(mutex_);
      in_use_ = in_use_ > 0 ? in_use_ - 1 : 0;  // it may have been taken before a fork
      if (piece.bytes <= kKeptBytes / 4) {
        // The oldest make room: sizes that are not wanted any more do not stay.
        while (count < count_ && (held_ + piece.bytes > kKeptBytes || count_ - count == kPieces)) {
          held_ -= pieces_[count].bytes;
          leaving[count] = pieces_[count];
          ++count;
        }
        std::move(pieces_.begin() + static_cast<ptrdiff_t>(count), pieces_.begin() + static_cast<ptrdiff_t>(count_),
                  pieces_.begin());
        count_ -= count;
        pieces_[count_++] = piece;
        held_ += piece.bytes;
      } else {
        leaving[count++] = piece;
      }
      if (in_use_ == 0) {
        std::copy_n(pieces_.begin(), count_, leaving.begin() + static_cast<ptrdiff_t>(count));
        count += count_;
        count_ = 0;
        held_ = 0;
      }
    }
    for (size_t i = 0; i < count; ++i) ::munmap(leaving[i].data, leaving[i].bytes);
  }

  // A piece that could not be had is not in use.
  void refused() noexcept {
    const std::lock_guard lock(mutex_);
    --in_use_;
  }

 private:
  static constexpr size_t kPieces = 256;

  const uint64_t generation_ = fork_generation();
  std::mutex mutex_;
  size_t in_use_ = 0;
  size_t held_ = 0;
  size_t count_ = 0;
  std::array<Piece, kPieces> pieces_;  // oldest first
};

std::atomic<size_t> taken{0};

}  // namespace

std::byte* take_memory(size_t bytes, size_t alignment) {
  void* data = nullptr;
  if (bytes > kMost) throw std::bad_alloc();
  if (bytes >= kMapped) {
    Kept& kept = Kept::of_process();
    data = kept.take(mapped_size(bytes));
    if (data == nullptr) {
      data = ::mmap(nullptr, mapped_size(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) {
        data = nullptr;
        kept.refused();
      }
    }
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
    Kept::of_process().put({data, mapped_size(bytes)});
  } else {
    std::free(data);
  }
}

size_t memory_taken() noexcept { return taken.load(std::memory_order_relaxed); }

}  // namespace fastshard
