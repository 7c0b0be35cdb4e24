// How positions and rows are split into lanes: docs/order.md, section 4.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "order/mix.h"

namespace fastshard::order {

inline constexpr uint64_t kMaxLanes = uint64_t{1} << 16;

// Position p belongs to lane p mod C, where it is place p div C. The lanes' lengths differ by at most one.
class LaneSplit {
 public:
  struct Place {
    uint64_t lane;
    uint64_t index;
  };

  constexpr LaneSplit(uint64_t size, uint64_t lanes) noexcept
      : lanes_(lanes), length_(size / lanes), longer_(size % lanes) {}

  [[nodiscard]] constexpr uint64_t lanes() const noexcept { return lanes_.divisor(); }

  [[nodiscard]] constexpr Place place(uint64_t position) const noexcept {
    const Divider::Result result = lanes_(position);
    return {result.remainder, result.quotient};
  }

  [[nodiscard]] constexpr uint64_t length(uint64_t lane) const noexcept { return length_ + (lane < longer_ ? 1 : 0); }

  // The first row of the lane, where the lanes lie one after the other.
  [[nodiscard]] constexpr uint64_t first_row(uint64_t lane) const noexcept {
    return lane * length_ + std::min(lane, longer_);
  }

 private:
  Divider lanes_;
  uint64_t length_;
  uint64_t longer_;
};

// The positions [begin, end) sorted by (position mod lanes, position).
class LaneSorted {
 public:
  constexpr LaneSorted(uint64_t begin, uint64_t end, uint64_t lanes) noexcept
      : begin_(begin), lanes_(lanes), begin_lane_(begin % lanes) {
    // The lanes that hold one position more are those from begin_lane_ on, going round: at most three runs of equal
    // lanes.
    const uint64_t each = (end - begin) / lanes;
    const uint64_t longer_end = begin_lane_ + (end - begin) % lanes;
    const bool wraps = longer_end > lanes;
    const uint64_t first_end = wraps ? longer_end - lanes : begin_lane_;
    const uint64_t second_end = wraps ? begin_lane_ : longer_end;
    const uint64_t outer = wraps ? each + 1 : each;
    runs_ = {Run{0, first_end, outer}, Run{first_end, second_end, wraps ? each : each + 1},
             Run{second_end, lanes, outer}};
  }

  struct Place {
    uint64_t lane;
    uint64_t index;   // among the lane's positions here
    uint64_t length;  // of them
  };

  // `place` below end - begin.
  [[nodiscard]] constexpr Place locate(uint64_t place) const noexcept {
    for (const Run& run : runs_) {
      const uint64_t total = (run.end - run.begin) * run.length;
      if (place < total) return {run.begin + place / run.length, place % run.length, run.length};
      place -= total;
    }
    return {lanes_, 0, 0};
  }

  [[nodiscard]] constexpr uint64_t position(Place place) const noexcept {
    const uint64_t distance = place.lane >= begin_lane_ ? place.lane - begin_lane_ : place.lane + lanes_ - begin_lane_;
    return begin_ + distance + place.index * lanes_;
  }

  // The positions from `place` on.
  constexpr void write(uint64_t place, std::span<uint64_t> out) const noexcept {
    size_t done = 0;
    while (done < out.size()) {
      const Place at = locate(place + done);
      const size_t count = std::min<size_t>(out.size() - done, at.length - at.index);
      uint64_t value = position(at);
      for (size_t i = 0; i < count; ++i, value += lanes_) out[done + i] = value;
      done += count;
    }
  }

 private:
  struct Run {
    uint64_t begin;  // lanes [begin, end) ...
    uint64_t end;
    uint64_t length;  // ... hold so many positions each
  };

  uint64_t begin_;
  uint64_t lanes_;
  uint64_t begin_lane_;
  std::array<Run, 3> runs_{};
};

}  // namespace fastshard::order
