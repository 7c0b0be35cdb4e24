// What is permuted as a whole: a lane of `global`, a window of `block`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "order/permutation.h"

namespace fastshard::order {

// The places [begin, end) of a lane, shuffled among themselves by P(end - begin, key).
struct Segment {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t key = 0;
  size_t index = 0;  // the window among all, for kind `block`
};

// The permutations used last, by lane: making one costs more than a few of its values. Belongs to one thread at a time.
class PermutationCache {
 public:
  [[nodiscard]] const Permutation& get(uint64_t lane, const Segment& segment) {
    if (slots_.empty()) slots_.resize(kSlots);
    Slot& slot = slots_[lane % kSlots];
    const uint64_t size = segment.end - segment.begin;
    if (!slot.permutation || slot.key != segment.key || slot.permutation->size() != size) {
      slot.permutation.emplace(size, segment.key);
      slot.key = segment.key;
    }
    return *slot.permutation;
  }

 private:
  static constexpr size_t kSlots = 64;

  struct Slot {
    uint64_t key = 0;
    std::optional<Permutation> permutation;
  };

  std::vector<Slot> slots_;
};

}  // namespace fastshard::order
