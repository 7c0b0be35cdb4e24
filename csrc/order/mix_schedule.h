// From which source each position of a mix comes: docs/order.md, section 9.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fastshard::order {

// One period of sources by integer weights. After each slot, each source has come less than one time more or less than
// its share. Immutable.
class MixSchedule {
 public:
  static constexpr uint64_t kMaxPeriod = uint64_t{1} << 16;

  struct Place {
    uint32_t source;
    uint64_t position;  // among those of its source
  };

  // Throws kInvalid unless there are weights, each at least 1, whose sum is at most kMaxPeriod.
  explicit MixSchedule(std::span<const uint64_t> weights);

  [[nodiscard]] size_t num_sources() const noexcept { return weights_.size(); }
  [[nodiscard]] uint64_t period() const noexcept { return slots_.size(); }
  [[nodiscard]] uint32_t source(uint64_t slot) const noexcept { return slots_[slot % slots_.size()].source; }

  // Where a position of the mix is in its source; lanes at least 1.
  [[nodiscard]] Place locate(uint64_t position, uint64_t lanes) const noexcept;
  // The same of many; all three have the same length.
  void locate(std::span<const uint64_t> positions, uint64_t lanes, std::span<uint32_t> sources,
              std::span<uint64_t> source_positions) const noexcept;

  // How many of the positions below `end` belong to each source; `counts` has num_sources() places.
  void count(uint64_t end, uint64_t lanes, std::span<uint64_t> counts) const noexcept;

 private:
  struct Slot {
    uint32_t source;
    uint32_t turn;  // how often the source came before in the period
  };

  std::vector<uint64_t> weights_;
  std::vector<Slot> slots_;
};

}  // namespace fastshard::order
