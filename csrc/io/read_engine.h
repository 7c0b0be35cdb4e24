// Reads in flight. An engine is handed whole batches of requests, and hands back what is done in any order; the caller
// owns the memory and keeps it until the completion came. One thread uses an engine, but for `wake`.
//
// Errors come by value: `result` is the number of bytes read (fewer than asked for at the end of a file, or where the
// system wants it so: the caller asks for the rest), or -errno.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace fastshard::io {

using Deadline = std::chrono::steady_clock::time_point;

struct ReadRequest {
  uint64_t tag = 0;
  int fd = -1;
  uint64_t offset = 0;
  std::span<std::byte> out;
};

struct ReadCompletion {
  uint64_t tag = 0;
  int32_t result = 0;
};

class ReadEngine {
 public:
  virtual ~ReadEngine() = default;

  // Takes as many requests as there is room for, from the front; returns how many. 0 means "full": wait first.
  [[nodiscard]] virtual size_t submit(std::span<const ReadRequest> requests) = 0;

  // Waits until `at_least` completions are there, until `deadline`, or until `wake`; returns how many it wrote.
  [[nodiscard]] virtual size_t wait(std::span<ReadCompletion> completions, size_t at_least, Deadline deadline) = 0;

  // Ends the present `wait`, or the next one. From any thread.
  virtual void wake() noexcept = 0;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  // Reads into memory that the kernel had been told of before. From any thread.
  [[nodiscard]] virtual int64_t registered_reads() const noexcept { return 0; }
};

// A pool of `threads` threads that call pread. Its destructor waits for the reads that they are at.
[[nodiscard]] std::unique_ptr<ReadEngine> make_thread_engine(uint32_t threads, uint32_t depth);

constexpr int64_t kRegisterAfter = int64_t{256} << 20;

// io_uring with room for `depth` reads. Null where the kernel or a policy does not allow it, or this build has no
// liburing; `reason` then says why. Memory is registered with the kernel, where it lets us, once so many bytes were
// read.
[[nodiscard]] std::unique_ptr<ReadEngine> make_uring_engine(uint32_t depth, std::string& reason,
                                                            int64_t register_after = kRegisterAfter);

// For tests: completions late, few at a time, in an order drawn from `seed`, some of them short.
[[nodiscard]] std::unique_ptr<ReadEngine> make_scrambled_engine(uint32_t depth, uint64_t seed);

}  // namespace fastshard::io
