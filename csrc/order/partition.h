// Which positions each rank gets at each step: docs/order.md, section 6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fastshard::order {

enum class Tail {
  kPad,    // every rank the same number of samples and steps, a few repeats
  kDrop,   // full global batches only
  kExact,  // each position once, ranks may differ by one sample and one step
};

// What a Partition is made of.
struct PartitionSpec {
  uint64_t size = 0;        // the epoch's end: positions [start, size) are divided
  uint64_t start = 0;       // the position at which the run started or resumed
  uint64_t lanes = 1;       // of the order
  uint64_t batch_size = 1;  // of one rank
  uint64_t world_size = 1;
  uint64_t rank = 0;
  uint64_t replication = 1;  // consecutive ranks that get identical batches
  Tail tail = Tail::kPad;
};

// The batches of one rank. Immutable, so any thread may use it.
class Partition {
 public:
  // Throws kInvalid, with the numbers, for a spec that cannot be divided or whose whole epoch [0, size) makes no batch.
  explicit Partition(const PartitionSpec& spec);

  [[nodiscard]] const PartitionSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] uint64_t global_batch_size() const noexcept { return global_batch_; }

  // Of this rank. No batch is empty.
  [[nodiscard]] uint64_t num_batches() const noexcept { return full_ + (last_.size() > 0 ? 1 : 0); }
  [[nodiscard]] uint64_t num_samples() const noexcept { return full_ * spec_.batch_size + last_.size(); }
  // Of this rank's samples, those that pad out its last batch: 0 or 1.
  [[nodiscard]] uint64_t num_repeats() const noexcept { return last_.repeats; }
  // The most that any rank has: steps of the run.
  [[nodiscard]] uint64_t num_steps() const noexcept { return full_ + (rest_ > 0 ? 1 : 0); }
  // Positions that no rank gets: what `drop` leaves.
  [[nodiscard]] uint64_t num_dropped() const noexcept { return spec_.size - position_after(num_steps()); }

  // `batch` below num_batches().
  [[nodiscard]] uint64_t batch_length(uint64_t batch) const noexcept {
    return batch < full_ ? spec_.batch_size : last_.size();
  }
  // So many at the batch's end are repeats.
  [[nodiscard]] uint64_t batch_repeats(uint64_t batch) const noexcept { return batch < full_ ? 0 : last_.repeats; }
  // Writes the batch's positions; `out` has batch_length(batch) places.
  void batch(uint64_t batch, std::span<uint64_t> out) const noexcept;

  // Where a run goes on after `steps` global batches were delivered.
  [[nodiscard]] uint64_t position_after(uint64_t steps) const noexcept;

 private:
  // A group's part of the last, shorter global batch, by places in its sorted order.
  struct Part {
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t repeats = 0;

    [[nodiscard]] uint64_t size() const noexcept { return count + repeats; }
  };

  [[nodiscard]] Part last_part(uint64_t group) const noexcept;
  [[nodiscard]] uint64_t repeat_lane(uint64_t group) const noexcept;
  [[nodiscard]] uint64_t repeat_position() const noexcept;

  PartitionSpec spec_;
  uint64_t groups_ = 1;        // D
  uint64_t group_ = 0;         // this rank's
  uint64_t global_batch_ = 1;  // G
  uint64_t full_ = 0;          // full global batches
  uint64_t rest_ = 0;          // delivered positions after them
  Part last_;                  // this rank's part of them
};

}  // namespace fastshard::order
