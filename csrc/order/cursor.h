// Where one worker of a rank stands in its batches: docs/order.md, section 6.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "order/partition.h"

namespace fastshard::order {

// Worker w of W takes the batches w, w + W, ... of its rank. A value: copy it to look ahead. Used by one thread at a
// time.
class Cursor {
 public:
  // Throws kInvalid unless worker < num_workers.
  explicit Cursor(const Partition& partition, uint64_t worker = 0, uint64_t num_workers = 1)
      : partition_(partition), num_workers_(num_workers), batch_(worker) {
    if (worker >= num_workers) {
      throw Error(ErrorKind::kInvalid, "worker must be below num_workers, got worker " + std::to_string(worker) +
                                           " of " + std::to_string(num_workers));
    }
  }

  [[nodiscard]] const Partition& partition() const noexcept { return partition_; }
  [[nodiscard]] bool done() const noexcept { return batch_ >= partition_.num_batches(); }

  // Of the next batch; unless done(): its number in the rank, its length, and how many repeats are at its end.
  [[nodiscard]] uint64_t batch() const noexcept { return batch_; }
  [[nodiscard]] uint64_t length() const noexcept { return partition_.batch_length(batch_); }
  [[nodiscard]] uint64_t repeats() const noexcept { return partition_.batch_repeats(batch_); }
  void read(std::span<uint64_t> positions) const noexcept { partition_.batch(batch_, positions); }

  void advance() noexcept { batch_ += num_workers_; }

 private:
  Partition partition_;
  uint64_t num_workers_;
  uint64_t batch_;
};

}  // namespace fastshard::order
