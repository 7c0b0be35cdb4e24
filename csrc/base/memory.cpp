#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <vector>

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
constexpr size_t kLarge = std::numeric_limits<size_t>::max();
#else
constexpr size_t kLarge = size_t{128} << 10;
#endif
constexpr size_t kMost = std::numeric_limits<size_t>::max() / 2;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegion = size_t{32} << 20;
constexpr size_t kLargestInRegion = kRegion / 4;
constexpr size_t kGranule = size_t{64} << 10;
constexpr size_t kGranules = kRegion / kGranule;
constexpr size_t kGranulesOfPage = kHugePage / kGranule;
constexpr size_t kPages = kRegion / kHugePage;
constexpr size_t kIdlePages = kRegion / kHugePage;  // of all regions: so many stay that nothing lies in

constexpr size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Address space that begins with a huge page, null where there is none. The system puts huge pages there if it has any.
std::byte* map_aligned(size_t bytes) noexcept {
  void* const found =
      ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(found);
  const size_t before = rounded(reinterpret_cast<uintptr_t>(first), kHugePage) - reinterpret_cast<uintptr_t>(first);
  if (before > 0) ::munmap(first, before);
  if (before < kHugePage) ::munmap(first + before + bytes, kHugePage - before);
  (void)::madvise(first + before, bytes, MADV_HUGEPAGE);  // refused where the kernel has none: small pages do as well
  return first + before;
}

// A part of the address space of which pieces are taken, each of consecutive granules.
class Region {
 public:
  explicit Region(std::byte* base) noexcept : base_(base) {}

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  // Nothing needs it.
  [[nodiscard]] bool empty() const noexcept { return used_ == 0 && pins_ == 0; }
  [[nodiscard]] bool holds(const std::byte* data) const noexcept { return data >= base_ && data < base_ + kRegion; }

  // The first place where `count` granules are free; null where there is none. `idle` is brought up to date.
  [[nodiscard]] std::byte* take(size_t count, size_t& idle) noexcept {
    if (count > longest_) return nullptr;
    size_t longest = 0;
    for (size_t first = 0; first < kGranules;) {
      size_t end = first;
      while (end < kGranules && end - first < count && !taken_[end]) ++end;
      if (end - first == count) {
        mark(first, end, true, idle);
        return base_ + first * kGranule;
      }
      longest = std::max(longest, end - first);
      first = end + 1;
    }
    longest_ = longest;
    return nullptr;
  }

  void give(const std::byte* data, size_t count, size_t& idle) noexcept {
    const size_t first = static_cast<size_t>(data - base_) / kGranule;
    mark(first, first + count, false, idle);
    longest_ = kGranules;
    for (size_t page = first / kGranulesOfPage; page <= (first + count - 1) / kGranulesOfPage; ++page) {
      if (in_page_[page] == 0 && pins_ == 0 && idle > kIdlePages) drop(page, idle);
    }
  }

  void pin() noexcept { ++pins_; }
  void unpin() noexcept { --pins_; }

  // Pages that hold nothing, but memory.
  [[nodiscard]] size_t idle() const noexcept {
    size_t idle = 0;
    for (size_t page = 0; page < kPages; ++page) idle += in_page_[page] == 0 && touched_[page] ? 1 : 0;
    return idle;
  }

 private:
  void mark(size_t first, size_t end, bool taken, size_t& idle) noexcept {
    for (size_t i = first; i < end; ++i) {
      const size_t page = i / kGranulesOfPage;
      taken_[i] = taken;
      if (taken) {
        if (in_page_[page]++ == 0 && touched_[page]) --idle;
        touched_[page] = true;
      } else if (--in_page_[page] == 0) {
        ++idle;
      }
    }
    used_ = taken ? used_ + (end - first) : used_ - (end - first);
  }

  void drop(size_t page, size_t& idle) noexcept {
    if (::madvise(base_ + page * kHugePage, kHugePage, MADV_DONTNEED) != 0) return;
    touched_[page] = false;
    --idle;
  }

  std::byte* base_;
  size_t used_ = 0;  // granules
  size_t pins_ = 0;
  size_t longest_ = kGranules;  // no more granules than these are free in a row
  std::bitset<kGranules> taken_;
  std::array<uint8_t, kPages> in_page_{};  // granules taken
  std::bitset<kPages> touched_;            // may have memory
};

// All regions, those of before a fork apart: their lock may be held for ever, and the memory is the parent's.
class Regions {
 public:
  [[nodiscard]] static Regions& of_process() {
    static std::atomic<Regions*> current{nullptr};
    Regions* found = current.load(std::memory_order_acquire);
    while (found == nullptr || found->generation_ != fork_generation()) {
      auto* const fresh = new Regions();  // lives as long as the process
      if (current.compare_exchange_strong(found, fresh, std::memory_order_acq_rel)) return *fresh;
      delete fresh;
    }
    return *found;
  }

  // Null where the system has none.
  [[nodiscard]] std::byte* take(size_t bytes) {
    const size_t count = rounded(bytes, kGranule) / kGranule;
    const std::lock_guard lock(mutex_);
    for (Region& region : regions_) {
      if (std::byte* const data = region.take(count, idle_)) return data;
    }
    regions_.reserve(regions_.size() + 1);
    std::byte* const base = map_aligned(kRegion);
    if (base == nullptr) return nullptr;
    return regions_.emplace_back(base).take(count, idle_);
  }

  void give(std::byte* data, size_t bytes) noexcept {
    const size_t count = rounded(bytes, kGranule) / kGranule;
    const std::lock_guard lock(mutex_);
    const auto found = holding(data);
    if (found == regions_.end()) {
      ::munmap(data, count * kGranule);  // of before a fork: nobody takes of its region any more
      return;
    }
    found->give(data, count, idle_);
    unmap_spares(found);
  }

  [[nodiscard]] std::optional<PinnedRegion> pin(const std::byte* data) {
    const std::lock_guard lock(mutex_);
    const auto found = holding(data);
    if (found == regions_.end()) return std::nullopt;
    found->pin();
    return std::optional<PinnedRegion>(std::in_place, std::span(found->base(), kRegion), generation_);
  }

  void unpin(const std::byte* base) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = holding(base);
    found->unpin();
    unmap_spares(found);
  }

  [[nodiscard]] size_t mapped() noexcept {
    const std::lock_guard lock(mutex_);
    return regions_.size() * kRegion;
  }

 private:
  [[nodiscard]] std::vector<Region>::iterator holding(const std::byte* data) noexcept {
    return std::find_if(regions_.begin(), regions_.end(), [&](const Region& region) { return region.holds(data); });
  }

  // Of a region that may be empty now. One that is stays for the next piece, as long as others are in use.
  void unmap_spares(std::vector<Region>::iterator changed) noexcept {
    if (!changed->empty()) return;
    const auto is_empty = [](const Region& region) { return region.empty(); };
    if (std::count_if(regions_.begin(), regions_.end(), is_empty) > 1) unmap(changed);
    if (std::all_of(regions_.begin(), regions_.end(), is_empty)) {
      while (!regions_.empty()) unmap(regions_.end() - 1);
    }
  }

  void unmap(std::vector<Region>::iterator region) noexcept {
    idle_ -= region->idle();
    ::munmap(region->base(), kRegion);
    regions_.erase(region);
  }

  const uint64_t generation_ = fork_generation();
  std::mutex mutex_;
  std::vector<Region> regions_;
  size_t idle_ = 0;  // pages that hold nothing, but memory
};

std::atomic<size_t> taken{0};

}  // namespace

std::byte* take_memory(size_t bytes, size_t alignment) {
  std::byte* data = nullptr;
  if (bytes > kMost) throw std::bad_alloc();
  if (bytes < kLarge) {
    data = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded(std::max(bytes, size_t{1}), alignment)));
  } else if (bytes <= kLargestInRegion) {
    data = Regions::of_process().take(bytes);
  } else {
    data = map_aligned(rounded(bytes, kHugePage));
  }
  if (data == nullptr) throw std::bad_alloc();
  taken.fetch_add(bytes, std::memory_order_relaxed);
  return data;
}

void give_memory(std::byte* data, size_t bytes) noexcept {
  if (data == nullptr) return;
  taken.fetch_sub(bytes, std::memory_order_relaxed);
  if (bytes < kLarge) {
    std::free(data);
  } else if (bytes <= kLargestInRegion) {
    Regions::of_process().give(data, bytes);
  } else {
    ::munmap(data, rounded(bytes, kHugePage));
  }
}

std::optional<PinnedRegion> pin_region(const std::byte* data) { return Regions::of_process().pin(data); }

PinnedRegion::~PinnedRegion() {
  // In a child, what its parent pinned stays as it is.
  if (!bytes_.empty() && generation_ == fork_generation()) Regions::of_process().unpin(bytes_.data());
}

size_t memory_taken() noexcept { return taken.load(std::memory_order_relaxed); }

size_t memory_mapped() noexcept { return Regions::of_process().mapped(); }

}  // namespace fastshard
