// Where the time of a thread that makes batches goes. What it calls adds to the sums of its thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace fastshard::pipeline {

struct StageTimes {
  int64_t read_ns = 0;    // waited for storage
  int64_t decode_ns = 0;  // checked and decompressed what had come
};

[[nodiscard]] inline StageTimes& stage_times() noexcept {
  static thread_local StageTimes times;
  return times;
}

// Adds the time of its life to a sum.
class StageClock {
 public:
  explicit StageClock(int64_t& sum) noexcept : sum_(sum) {}
  ~StageClock() {
    sum_ += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_).count();
  }
  StageClock(const StageClock&) = delete;
  StageClock& operator=(const StageClock&) = delete;

 private:
  int64_t& sum_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// How long a thread stood still, and whether pages of a mapping were not in memory. Costs two calls of the system: for
// what takes longer than those.
class FaultClock {
 public:
  FaultClock() noexcept;
  struct Still {
    int64_t ns = 0;  // in which it computed nothing
    bool for_pages = false;
  };
  // Since then.
  [[nodiscard]] Still stood_still() const noexcept;

 private:
  int64_t wall_ns_ = 0;
  int64_t cpu_ns_ = 0;
  int64_t waits_ = 0;
};

}  // namespace fastshard::pipeline
