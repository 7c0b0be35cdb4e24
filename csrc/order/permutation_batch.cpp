#include "order/permutation_batch.h"

#include <algorithm>
#include <array>

namespace fastshard::order {
namespace {

constexpr size_t kChunk = 512;  // digit pairs in flight: a few KiB, inside the first-level cache
constexpr size_t kFew = 4;      // so many are faster one by one than as a padded vector

static_assert(kChunk % detail::kStride == 0);

using Network = void (*)(const Permutation&, uint32_t*, uint32_t*, uint64_t*, size_t);

Network network_of(Kernel kernel) noexcept {
  switch (kernel) {
    case Kernel::kAvx2: return detail::network_avx2;
    case Kernel::kPortable: break;
  }
  return detail::network_portable;
}

// Digit pairs of one chunk. After a pass, those whose value is not below size() walk on (docs/order.md, section 3):
// they are gathered at the front and passed again, fewer each time.
class Chunk {
 public:
  Chunk(const Permutation& permutation, Network network) : permutation_(permutation), network_(network) {}

  void set(size_t index, Permutation::Digits digits) noexcept {
    left_[index] = digits.left;
    right_[index] = digits.right;
  }

  // Uses the digits up: set() them anew.
  void run(std::span<uint64_t> ids) noexcept {
    pass(ids.size());
    size_t walking = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = values_[i];
      if (values_[i] >= permutation_.size()) walk_on(i, i, walking++);
    }
    while (walking > 0) {
      pass(walking);
      size_t still = 0;
      for (size_t i = 0; i < walking; ++i) {
        ids[places_[i]] = values_[i];
        if (values_[i] >= permutation_.size()) walk_on(i, places_[i], still++);
      }
      walking = still;
    }
  }

 private:
  void walk_on(size_t from, size_t place, size_t to) noexcept {
    places_[to] = static_cast<uint32_t>(place);
    left_[to] = left_[from];
    right_[to] = right_[from];
  }

  void pass(size_t count) noexcept {
    const size_t padded = (count + detail::kStride - 1) / detail::kStride * detail::kStride;
    std::fill(left_.begin() + count, left_.begin() + padded, 0U);
    std::fill(right_.begin() + count, right_.begin() + padded, 0U);
    network_(permutation_, left_.data(), right_.data(), values_.data(), padded);
  }

  const Permutation& permutation_;
  Network network_;
  alignas(64) std::array<uint32_t, kChunk> left_;
  alignas(64) std::array<uint32_t, kChunk> right_;
  alignas(64) std::array<uint64_t, kChunk> values_;
  std::array<uint32_t, kChunk> places_;
};

}  // namespace

std::string_view kernel_name(Kernel kernel) noexcept {
  switch (kernel) {
    case Kernel::kAvx2: return "avx2";
    case Kernel::kPortable: break;
  }
  return "portable";
}

std::span<const Kernel> available_kernels() noexcept {
  static constexpr std::array<Kernel, 2> kAll = {Kernel::kPortable, Kernel::kAvx2};
  static const size_t count = detail::has_avx2() ? 2 : 1;
  return std::span(kAll).first(count);
}

Kernel best_kernel() noexcept { return available_kernels().back(); }

void fill(const Permutation& permutation, uint64_t first, std::span<uint64_t> ids, Kernel kernel) {
  if (permutation.has_table()) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = permutation.table()[first + i];
    return;
  }
  if (ids.empty()) return;
  Chunk chunk(permutation, network_of(kernel));
  Permutation::Digits digits = permutation.split(first);
  const uint32_t right_size = permutation.right_size();
  for (size_t done = 0; done < ids.size(); done += kChunk) {
    const size_t count = std::min(kChunk, ids.size() - done);
    for (size_t i = 0; i < count; ++i) {
      chunk.set(i, digits);
      if (++digits.right == right_size) {
        digits.right = 0;
        ++digits.left;
      }
    }
    chunk.run(ids.subspan(done, count));
  }
}

void evaluate(const Permutation& permutation, std::span<const uint64_t> positions, std::span<uint64_t> ids,
              Kernel kernel) {
  if (permutation.has_table()) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = permutation.table()[positions[i]];
    return;
  }
  if (ids.size() <= kFew) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = permutation(positions[i]);
    return;
  }
  Chunk chunk(permutation, network_of(kernel));
  for (size_t done = 0; done < ids.size(); done += kChunk) {
    const size_t count = std::min(kChunk, ids.size() - done);
    for (size_t i = 0; i < count; ++i) chunk.set(i, permutation.split(positions[done + i]));
    chunk.run(ids.subspan(done, count));
  }
}

namespace detail {

void network_portable(const Permutation& permutation, uint32_t* left, uint32_t* right, uint64_t* values, size_t count) {
  // Round by round over one stride: straight loops that compilers turn into the vector instructions they may assume.
  for (size_t start = 0; start < count; start += kStride) {
    uint32_t* l = left + start;
    uint32_t* r = right + start;
    for (size_t round = 0; round < Permutation::kRounds; round += 2) {
      const Permutation::RoundKey left_key = permutation.round_keys()[round];
      const Permutation::RoundKey right_key = permutation.round_keys()[round + 1];
      const uint32_t left_size = permutation.left_size();
      const uint32_t right_size = permutation.right_size();
      for (size_t i = 0; i < kStride; ++i) l[i] = Permutation::shift(l[i], r[i], left_key, left_size);
      for (size_t i = 0; i < kStride; ++i) r[i] = Permutation::shift(r[i], l[i], right_key, right_size);
    }
    for (size_t i = 0; i < kStride; ++i) values[start + i] = permutation.compose({l[i], r[i]});
  }
}

}  // namespace detail
}  // namespace fastshard::order
