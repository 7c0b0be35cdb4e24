#include "order/epoch_order.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "order/permutation_batch.h"

namespace fastshard::order {
namespace {

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorKind::kInvalid, message); }

void check(const OrderSpec& spec) {
  if (spec.size > Permutation::kMaxSize) {
    invalid("an order has at most 2^62 samples, got " + std::to_string(spec.size));
  }
  if (spec.kind == Kind::kBlock && spec.window == 0) invalid("window must be at least 1 sample, got 0");
  if (!spec.lanes) return;
  if (*spec.lanes == 0 || *spec.lanes > kMaxLanes) {
    invalid("lanes must be from 1 to " + std::to_string(kMaxLanes) + ", got " + std::to_string(*spec.lanes));
  }
  if (spec.kind == Kind::kNone && *spec.lanes != 1) {
    invalid("without shuffling there is 1 lane, got lanes " + std::to_string(*spec.lanes));
  }
}

}  // namespace

EpochOrder::EpochOrder(const OrderSpec& spec, const ShardTable& shards) : kind_(spec.kind), size_(spec.size) {
  check(spec);
  if (spec.kind == Kind::kBlock) {
    check_rows(shards, spec.size);
    const std::vector<uint64_t> rows = unit_rows(shards, spec.unit_blocks);
    lanes_ = LaneSplit(spec.size, spec.lanes ? *spec.lanes : default_lanes(count_units(shards, rows)));
    order_.emplace<BlockOrder>(shards, rows, lanes_, BlockOrder::Spec{spec.seed, spec.epoch, spec.window});
    return;
  }
  lanes_ = LaneSplit(spec.size, spec.lanes.value_or(1));
  if (spec.kind == Kind::kNone) return;
  if (lanes_.lanes() == 1) {
    order_.emplace<Permutation>(spec.size, hash_words(Purpose::kGlobal, {spec.seed, spec.epoch, 0}));
  } else {
    check_rows(shards, spec.size);
    order_.emplace<LanedGlobalOrder>(shards, lanes_, spec.seed, spec.epoch);
  }
}

void EpochOrder::ids(std::span<const uint64_t> positions, std::span<uint64_t> ids, PermutationCache& cache) const {
  if (const auto* permutation = std::get_if<Permutation>(&order_)) {
    evaluate(*permutation, positions, ids);
  } else if (const auto* global = std::get_if<LanedGlobalOrder>(&order_)) {
    lane_ids(*global, positions, ids, cache);
  } else if (const auto* block = std::get_if<BlockOrder>(&order_)) {
    lane_ids(*block, positions, ids, cache);
  } else {
    std::copy(positions.begin(), positions.end(), ids.begin());
  }
}

// Takes as many positions at a time as follow each other in one segment.
template <typename Order>
void EpochOrder::lane_ids(const Order& order, std::span<const uint64_t> positions, std::span<uint64_t> ids,
                          PermutationCache& cache) const {
  size_t done = 0;
  while (done < positions.size()) {
    LaneSplit::Place place = lanes_.place(positions[done]);
    const uint64_t lane = place.lane;
    const Segment segment = order.segment(lane, place.index);
    size_t end = done;
    while (place.lane == lane && place.index >= segment.begin && place.index < segment.end) {
      ids[end++] = place.index - segment.begin;
      if (end == positions.size()) break;
      place = lanes_.place(positions[end]);
    }
    const std::span<uint64_t> run = ids.subspan(done, end - done);
    evaluate(cache.get(lane, segment), run, run);
    for (uint64_t& value : run) value += segment.begin;
    order.map(lane, segment, run);
    done = end;
  }
}

}  // namespace fastshard::order
