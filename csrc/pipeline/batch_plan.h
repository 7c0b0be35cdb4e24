// Which samples make which batch, in the order of delivery.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "order/epoch_order.h"
#include "order/partition.h"
#include "order/selection.h"

namespace fastshard::pipeline {

struct PlannedBatch {
  std::vector<int64_t> ids;
  std::vector<uint64_t> positions;
  uint64_t repeats = 0;  // so many at the end pad the batch
};

// Batches first, first + step, ... of one rank's share of an epoch. Immutable: any thread may ask for any batch.
class BatchPlan {
 public:
  // `selection` maps places of the order to sample ids (a view's); null where they are the same. It has at least as
  // many as the order; the caller checks it.
  BatchPlan(std::shared_ptr<const order::EpochOrder> order, order::Partition partition, uint64_t first, uint64_t step,
            std::shared_ptr<const order::Selection> selection)
      : order_(std::move(order)),
        partition_(std::move(partition)),
        first_(first),
        step_(step),
        selection_(std::move(selection)) {}

  [[nodiscard]] uint64_t size() const noexcept {
    const uint64_t all = partition_.num_batches();
    return first_ >= all ? 0 : (all - first_ + step_ - 1) / step_;
  }

  // Batch `index`, below size(). `cache` belongs to the calling thread.
  void fill(uint64_t index, PlannedBatch& batch, order::PermutationCache& cache) const {
    const uint64_t number = first_ + index * step_;
    const uint64_t length = partition_.batch_length(number);
    batch.positions.resize(length);
    batch.ids.resize(length);
    batch.repeats = partition_.batch_repeats(number);
    partition_.batch(number, batch.positions);
    const std::span<uint64_t> ids(reinterpret_cast<uint64_t*>(batch.ids.data()), length);
    order_->ids(batch.positions, ids, cache);
    if (selection_) selection_->ids(ids, ids);
  }

 private:
  std::shared_ptr<const order::EpochOrder> order_;
  order::Partition partition_;
  uint64_t first_;
  uint64_t step_;
  std::shared_ptr<const order::Selection> selection_;
};

}  // namespace fastshard::pipeline
