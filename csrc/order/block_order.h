// The order of kind `block`: units of a lane permuted, and samples permuted within windows of units. docs/order.md,
// section 5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "order/lanes.h"
#include "order/segment.h"
#include "order/shard_table.h"

namespace fastshard::order {

// The one stored permutation: for each unit of each lane, in epoch order, 16 bytes. Immutable.
class BlockOrder {
 public:
  struct Spec {
    uint64_t seed;
    uint64_t epoch;
    uint64_t window;  // samples, at least 1
  };

  // `unit_rows` as unit_rows() gives them; the lanes' total is the shards'.
  BlockOrder(const ShardTable& shards, std::span<const uint64_t> unit_rows, const LaneSplit& lanes, const Spec& spec);

  // The window that holds place `index` of the lane.
  [[nodiscard]] Segment segment(uint64_t lane, uint64_t index) const noexcept;
  // Turns places in the lane's units in epoch order, all of them in `segment`, into ids.
  void map(uint64_t lane, const Segment& segment, std::span<uint64_t> places) const noexcept;

 private:
  struct Unit {
    uint64_t first_id;
    uint64_t rows;
  };

  void add_lane(std::span<const Unit> units, uint64_t lane, const LaneSplit& lanes, const Spec& spec);

  uint64_t seed_;
  uint64_t epoch_;
  // Units. Ends count rows of the lane; the sample at place x of the lane, in unit i, is x + id_shifts_[i] (mod 2^64).
  std::vector<uint64_t> unit_ends_;
  std::vector<uint64_t> id_shifts_;
  // Windows that hold units.
  std::vector<uint64_t> window_ends_;       // as unit_ends_
  std::vector<uint64_t> window_numbers_;    // k
  std::vector<uint32_t> window_unit_ends_;  // among all units
  std::vector<size_t> lane_windows_;        // where each lane's windows begin, and the end of the last
};

}  // namespace fastshard::order
