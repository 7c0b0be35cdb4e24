#include "order/partition.h"

#include <string>

#include "base/error.h"
#include "order/lanes.h"
#include "order/permutation.h"

namespace fastshard::order {
namespace {

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorKind::kInvalid, message); }

std::string text(uint64_t number) { return std::to_string(number); }

void require_positive(const char* name, uint64_t value) {
  if (value == 0) invalid(std::string(name) + " must be at least 1, got 0");
}

void check(const PartitionSpec& spec) {
  require_positive("batch_size", spec.batch_size);
  require_positive("world_size", spec.world_size);
  require_positive("replication", spec.replication);
  require_positive("lanes", spec.lanes);
  if (spec.lanes > kMaxLanes) invalid("lanes must be at most " + text(kMaxLanes) + ", got " + text(spec.lanes));
  if (spec.size > Permutation::kMaxSize) invalid("an epoch has at most 2^62 samples, got " + text(spec.size));
  if (spec.rank >= spec.world_size) {
    invalid("rank must be below world_size, got rank " + text(spec.rank) + " of " + text(spec.world_size));
  }
  if (spec.world_size % spec.replication != 0) {
    invalid("world_size must be a multiple of replication, got world_size " + text(spec.world_size) +
            " and replication " + text(spec.replication));
  }
  if (spec.batch_size > Permutation::kMaxSize / (spec.world_size / spec.replication)) {
    invalid("a global batch has at most 2^62 samples, got batch_size " + text(spec.batch_size) + " on " +
            text(spec.world_size / spec.replication) + " ranks");
  }
  if (spec.start > spec.size) {
    invalid("cannot start at position " + text(spec.start) + " of an epoch of " + text(spec.size) + " samples");
  }
}

// The whole epoch is what counts: a run that resumes near its end may find no batch left, which is no mistake.
void check_yields(const PartitionSpec& spec, uint64_t groups) {
  if (spec.size == 0) invalid("there are no samples: 0 samples make no batch");
  const uint64_t needed = groups * spec.batch_size;
  if (spec.tail != Tail::kDrop || spec.size >= needed) return;
  std::string message =
      text(spec.size) + (spec.size == 1 ? " sample makes" : " samples make") + " no batch of " + text(spec.batch_size);
  if (groups == 1) {
    message += " when incomplete batches are dropped";
  } else {
    message += " for every rank when incomplete batches are dropped: with " + text(groups) + " ranks x " +
               text(spec.batch_size) + ", " + text(needed) + " are needed";
    if (spec.replication > 1) message += " (every " + text(spec.replication) + " ranks count as one, replication)";
  }
  invalid(message + "; take a smaller batch_size, or tail=\"pad\" or \"exact\"");
}

}  // namespace

Partition::Partition(const PartitionSpec& spec) : spec_(spec) {
  check(spec);
  groups_ = spec.world_size / spec.replication;
  group_ = spec.rank / spec.replication;
  global_batch_ = groups_ * spec.batch_size;
  check_yields(spec, groups_);
  const uint64_t positions = spec.size - spec.start;
  full_ = positions / global_batch_;
  rest_ = spec.tail == Tail::kDrop ? 0 : positions % global_batch_;
  last_ = last_part(group_);
}

void Partition::batch(uint64_t batch, std::span<uint64_t> out) const noexcept {
  const uint64_t begin = position_after(batch);
  const LaneSorted sorted(begin, position_after(batch + 1), spec_.lanes);
  if (batch < full_) {
    sorted.write(group_ * spec_.batch_size, out);
    return;
  }
  sorted.write(last_.first, out.first(last_.count));
  if (last_.repeats > 0) out[last_.count] = repeat_position();
}

uint64_t Partition::position_after(uint64_t steps) const noexcept {
  return steps <= full_ ? spec_.start + steps * global_batch_ : spec_.start + full_ * global_batch_ + rest_;
}

// The first rest_ mod D groups have one position more; with `pad` the others repeat one sample instead.
Partition::Part Partition::last_part(uint64_t group) const noexcept {
  const uint64_t each = rest_ / groups_;
  const uint64_t longer = rest_ % groups_;
  Part part{group * each + std::min(group, longer), each + (group < longer ? 1 : 0), 0};
  if (spec_.tail == Tail::kPad && longer > 0 && group >= longer) part.repeats = 1;
  return part;
}

// The lane of the part's last position; for an empty part, lanes of the positions there are, in turn.
uint64_t Partition::repeat_lane(uint64_t group) const noexcept {
  const uint64_t begin = position_after(full_);
  const Part part = last_part(group);
  const uint64_t place = part.count > 0 ? part.first + part.count - 1 : group % rest_;
  return LaneSorted(begin, begin + rest_, spec_.lanes).locate(place).lane;
}

// Repeats are the first positions of their lane in this epoch, each group taking the next one.
uint64_t Partition::repeat_position() const noexcept {
  const uint64_t lane = repeat_lane(group_);
  uint64_t index = 0;
  for (uint64_t group = rest_ % groups_; group < group_; ++group) index += repeat_lane(group) == lane ? 1 : 0;
  return lane + index % LaneSplit(spec_.size, spec_.lanes).length(lane) * spec_.lanes;
}

}  // namespace fastshard::order
