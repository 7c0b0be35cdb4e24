// Python's order objects, for the bindings that take them as arguments.
#pragma once

#include <mutex>
#include <span>

#include "order/epoch_order.h"

namespace fastshard::bindings {

// An order and the permutations that its last calls used; a call that finds them taken uses its own.
struct SharedEpochOrder {
  SharedEpochOrder(const order::OrderSpec& spec, const order::ShardTable& shards) : order(spec, shards) {}

  void ids(std::span<const uint64_t> positions, std::span<uint64_t> ids) {
    const std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
    if (lock.owns_lock()) {
      order.ids(positions, ids, cache);
    } else {
      order::PermutationCache own;
      order.ids(positions, ids, own);
    }
  }

  const order::EpochOrder order;
  std::mutex mutex;
  order::PermutationCache cache;
};

}  // namespace fastshard::bindings
