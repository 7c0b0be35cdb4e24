#include "order/mix_schedule.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastshard::order {
namespace {

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorKind::kInvalid, message); }

uint64_t checked_sum(std::span<const uint64_t> weights) {
  if (weights.empty()) invalid("a mix needs at least one source, got no weights");
  uint64_t total = 0;
  for (size_t j = 0; j < weights.size(); ++j) {
    if (weights[j] == 0) invalid("weights must be at least 1, got 0 for source " + std::to_string(j));
    total = std::min(total, MixSchedule::kMaxPeriod) + std::min(weights[j], MixSchedule::kMaxPeriod + 1);
  }
  if (total > MixSchedule::kMaxPeriod) {
    invalid("the sum of the weights must be at most " + std::to_string(MixSchedule::kMaxPeriod) +
            "; divide them by a common factor or round them");
  }
  return total;
}

// (slot, source): the smallest slot first, then the smallest source.
using Event = std::pair<uint64_t, uint32_t>;
using Queue = std::priority_queue<Event, std::vector<Event>, std::greater<>>;

}  // namespace

MixSchedule::MixSchedule(std::span<const uint64_t> weights) : weights_(weights.begin(), weights.end()) {
  const uint64_t total = checked_sum(weights);
  slots_.reserve(total);
  std::vector<uint32_t> taken(weights.size(), 0);
  Queue coming;  // by the slot from which the source's next sample may come
  Queue ready;   // by the slot before which it must come
  for (uint32_t j = 0; j < weights.size(); ++j) coming.emplace(0, j);
  for (uint64_t slot = 0; slot < total; ++slot) {
    while (!coming.empty() && coming.top().first <= slot) {
      const uint32_t source = coming.top().second;
      coming.pop();
      ready.emplace(((taken[source] + uint64_t{1}) * total + weights[source] - 1) / weights[source], source);
    }
    const uint32_t source = ready.top().second;  // never empty: as many samples may come by a slot as there are slots
    ready.pop();
    slots_.push_back({source, taken[source]});
    ++taken[source];
    if (taken[source] < weights[source]) coming.emplace(taken[source] * total / weights[source], source);
  }
}

MixSchedule::Place MixSchedule::locate(uint64_t position, uint64_t lanes) const noexcept {
  const uint64_t turn = position / lanes;
  const Slot& slot = slots_[turn % period()];
  const uint64_t turns_of_source = turn / period() * weights_[slot.source] + slot.turn;
  return {slot.source, turns_of_source * lanes + position % lanes};
}

void MixSchedule::locate(std::span<const uint64_t> positions, uint64_t lanes, std::span<uint32_t> sources,
                         std::span<uint64_t> source_positions) const noexcept {
  for (size_t i = 0; i < positions.size(); ++i) {
    const Place place = locate(positions[i], lanes);
    sources[i] = place.source;
    source_positions[i] = place.position;
  }
}

void MixSchedule::count(uint64_t end, uint64_t lanes, std::span<uint64_t> counts) const noexcept {
  const uint64_t turns = end / lanes;
  for (size_t j = 0; j < weights_.size(); ++j) counts[j] = turns / period() * weights_[j] * lanes;
  for (uint64_t slot = 0; slot < turns % period(); ++slot) counts[slots_[slot].source] += lanes;
  counts[source(turns)] += end % lanes;
}

}  // namespace fastshard::order
