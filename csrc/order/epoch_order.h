// The order of one epoch: position -> sample id. docs/order.md, sections 4 and 5.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "order/block_order.h"
#include "order/lanes.h"
#include "order/permutation.h"
#include "order/segment.h"
#include "order/shard_table.h"

namespace fastshard::order {

enum class Kind {
  kNone,    // position p is sample p
  kGlobal,  // a keyed permutation of all samples
  kBlock,   // units of blocks permuted, samples permuted within a window
};

struct OrderSpec {
  Kind kind = Kind::kNone;
  uint64_t size = 0;  // N
  uint64_t seed = 0;
  uint64_t epoch = 0;
  std::optional<uint64_t> lanes;  // C; by default what the kind says
  uint64_t window = 0;            // samples; `block` only
  uint64_t unit_blocks = 0;       // blocks of a unit; `block` only
};

// Several lanes, each permuted as a whole: kind `global` with more than one lane. Immutable.
class LanedGlobalOrder {
 public:
  LanedGlobalOrder(const ShardTable& shards, const LaneSplit& lanes, uint64_t seed, uint64_t epoch)

      : deal_(shards, {}, lanes.lanes(), seed), lanes_(lanes), seed_(seed), epoch_(epoch) {}

  [[nodiscard]] Segment segment(uint64_t lane, uint64_t /*index*/) const noexcept {
    return {0, lanes_.length(lane), hash_words(Purpose::kGlobal, {seed_, epoch_, lane}), 0};
  }
  void map(uint64_t lane, const Segment& /*segment*/, std::span<uint64_t> places) const noexcept {
    for (uint64_t& place : places) place = deal_.id(lanes_.first_row(lane) + place);
  }

 private:
  Deal deal_;
  LaneSplit lanes_;
  uint64_t seed_;
  uint64_t epoch_;
};

// Immutable, so any thread may use it.
class EpochOrder {
 public:
  // Throws kInvalid for what makes no order. `shards` is read only here: by `block`, and by `global` with several
  // lanes.
  EpochOrder(const OrderSpec& spec, const ShardTable& shards);

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] uint64_t size() const noexcept { return size_; }
  [[nodiscard]] uint64_t lanes() const noexcept { return lanes_.lanes(); }

  // ids[i] = the sample at positions[i]. Each position below size(), ids.size() == positions.size(); the caller checks
  // it. Runs of positions of one lane, ascending, are fast. `cache` belongs to the calling thread and to this order or
  // others.
  void ids(std::span<const uint64_t> positions, std::span<uint64_t> ids, PermutationCache& cache) const;

 private:
  struct Identity {};

  template <typename Order>
  void lane_ids(const Order& order, std::span<const uint64_t> positions, std::span<uint64_t> ids,
                PermutationCache& cache) const;

  Kind kind_;
  uint64_t size_;
  LaneSplit lanes_{0, 1};
  std::variant<Identity, Permutation, LanedGlobalOrder, BlockOrder> order_;
};

}  // namespace fastshard::order
