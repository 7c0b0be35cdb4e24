#include "order/block_order.h"

#include <algorithm>
#include <array>

#include "order/permutation_batch.h"

namespace fastshard::order {
namespace {

uint64_t multiply_divide(uint64_t a, uint64_t b, uint64_t divisor) noexcept {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b / divisor);
}

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The first of [first, last) with ends[i] > value; there is one. Searched outwards from `guess`, at the cost of the
// logarithm of its distance.
size_t first_after(std::span<const uint64_t> ends, size_t first, size_t last, size_t guess, uint64_t value) noexcept {
  size_t step = 1;
  if (ends[guess] > value) {
    size_t high = guess;  // ends[high] > value
    while (high > first && ends[high - std::min(step, high - first)] > value) {
      high -= std::min(step, high - first);
      step *= 2;
    }
    last = high;
    first = high - std::min(step, high - first);
  } else {
    size_t low = guess;  // ends[low] <= value
    while (last - low > step && ends[low + step] <= value) {
      low += step;
      step *= 2;
    }
    first = low + 1;
    last = std::min(last, low + step);
  }
  while (first < last) {
    const size_t middle = (first + last) / 2;
    if (ends[middle] > value) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

}  // namespace

BlockOrder::BlockOrder(const ShardTable& shards, std::span<const uint64_t> unit_rows, const LaneSplit& lanes,
                       const Spec& spec)
    : seed_(spec.seed), epoch_(spec.epoch) {
  const uint64_t units = count_units(shards, unit_rows);
  unit_ends_.reserve(units + lanes.lanes());
  id_shifts_.reserve(units + lanes.lanes());
  lane_windows_.reserve(lanes.lanes() + 1);
  const Deal deal(shards, unit_rows, lanes.lanes(), spec.seed);
  std::vector<Unit> lane_units;
  lane_units.reserve(units / lanes.lanes() + 1);
  auto piece = deal.pieces().begin();
  uint64_t row = 0;  // of the piece
  for (uint64_t lane = 0; lane < lanes.lanes(); ++lane) {
    lane_units.clear();
    for (uint64_t left = lanes.length(lane); left > 0;) {
      const uint64_t unit_end = std::min(piece->rows, (row / piece->unit_rows + 1) * piece->unit_rows);
      const uint64_t count = std::min(left, unit_end - row);
      lane_units.push_back({piece->first_id + row, count});
      left -= count;
      row += count;
      if (row == piece->rows) {
        ++piece;
        row = 0;
      }
    }
    lane_windows_.push_back(window_ends_.size());
    if (!lane_units.empty()) add_lane(lane_units, lane, lanes, spec);
  }
  lane_windows_.push_back(window_ends_.size());
}

void BlockOrder::add_lane(std::span<const Unit> units, uint64_t lane, const LaneSplit& lanes, const Spec& spec) {
  const uint64_t length = lanes.length(lane);
  const uint64_t window_rows = ceil_div(spec.window, lanes.lanes());
  const Permutation permutation(units.size(), hash_words(Purpose::kUnits, {spec.seed, spec.epoch, lane}));
  const uint64_t windows = ceil_div(length, window_rows);
  const uint64_t width = ceil_div(length, windows);
  const uint64_t phase = windows == 1 ? 0 : multiply_divide(lane, width, lanes.lanes());
  uint64_t before = 0;
  uint64_t window_limit = 0;  // the first value of `before` that belongs to a later window
  std::array<uint64_t, 512> chosen;
  for (size_t done = 0; done < units.size(); done += chosen.size()) {
    const size_t count = std::min(chosen.size(), units.size() - done);
    fill(permutation, done, std::span(chosen).first(count));
    for (size_t i = 0; i < count; ++i) {
      const Unit& unit = units[chosen[i]];
      if (before >= window_limit) {
        const uint64_t number = (before + phase) / width;
        window_limit = (number + 1) * width - phase;
        window_numbers_.push_back(number);
        window_ends_.push_back(0);
        window_unit_ends_.push_back(0);
      }
      id_shifts_.push_back(unit.first_id - before);
      before += unit.rows;
      unit_ends_.push_back(before);
      window_ends_.back() = before;
      window_unit_ends_.back() = static_cast<uint32_t>(unit_ends_.size());
    }
  }
}

Segment BlockOrder::segment(uint64_t lane, uint64_t index) const noexcept {
  const size_t first = lane_windows_[lane];
  const auto begin = window_ends_.begin();
  const auto found = std::upper_bound(begin + static_cast<ptrdiff_t>(first),
                                      begin + static_cast<ptrdiff_t>(lane_windows_[lane + 1]), index);
  const auto window = static_cast<size_t>(found - begin);
  return {window == first ? 0 : window_ends_[window - 1], *found,
          hash_words(Purpose::kWindow, {seed_, epoch_, lane, window_numbers_[window]}), window};
}

void BlockOrder::map(uint64_t /*lane*/, const Segment& segment, std::span<uint64_t> places) const noexcept {
  const size_t first = segment.index == 0 ? 0 : window_unit_ends_[segment.index - 1];
  const size_t last = window_unit_ends_[segment.index];
  // Units are nearly equal, so a place's share of the window is nearly its unit's.
  const uint64_t units_per_row = UINT64_MAX / (segment.end - segment.begin) * (last - first);
  for (uint64_t& place : places) {
    const size_t guess = first + multiply_high(place - segment.begin, units_per_row);
    place += id_shifts_[first_after(unit_ends_, first, last, guess, place)];
  }
}

}  // namespace fastshard::order
