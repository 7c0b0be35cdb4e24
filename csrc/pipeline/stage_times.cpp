#include "pipeline/stage_times.h"

#include <sys/resource.h>

#include <algorithm>

namespace fastshard::pipeline {
namespace {

struct Sample {
  int64_t wall_ns = 0;
  int64_t cpu_ns = 0;
  int64_t waits = 0;  // for pages: faults that had to wait are major ones
};

int64_t nanoseconds(const timeval& time) { return int64_t{time.tv_sec} * 1000000000 + int64_t{time.tv_usec} * 1000; }

Sample sample() noexcept {
  Sample now;
  now.wall_ns = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
#ifdef RUSAGE_THREAD
  rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) == 0) {
    now.cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
    now.waits = usage.ru_majflt;
  }
#endif
  return now;
}

}  // namespace

FaultClock::FaultClock() noexcept {
  const Sample now = sample();
  wall_ns_ = now.wall_ns;
  cpu_ns_ = now.cpu_ns;
  waits_ = now.waits;
}

FaultClock::Still FaultClock::stood_still() const noexcept {
  const Sample now = sample();
  return {std::max<int64_t>(0, now.wall_ns - wall_ns_ - (now.cpu_ns - cpu_ns_)), now.waits != waits_};
}

}  // namespace fastshard::pipeline
