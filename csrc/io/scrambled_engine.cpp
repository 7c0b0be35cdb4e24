// An engine for tests: it reads at once, and hands completions back late, few at a time and in an order drawn from a
// seed; some reads come short, as the system is free to let them.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <random>
#include <vector>

#include "io/read_engine.h"

namespace fastshard::io {
namespace {

constexpr size_t kPage = 4096;

class ScrambledEngine final : public ReadEngine {
 public:
  ScrambledEngine(uint32_t depth, uint64_t seed) : depth_(std::max(1U, depth)), random_(seed) {}

  size_t submit(std::span<const ReadRequest> requests) override {
    const std::lock_guard lock(mutex_);
    size_t taken = 0;
    while (taken < requests.size() && held_.size() < depth_) held_.push_back(read(requests[taken++]));
    return taken;
  }

  size_t wait(std::span<ReadCompletion> completions, size_t at_least, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const size_t wanted = std::min(at_least, completions.size());
    changed_.wait_until(lock, deadline, [&] { return held_.size() >= wanted || woken_; });
    woken_ = false;
    const size_t most = std::min(completions.size(), held_.size());
    const size_t count = most == 0 ? 0 : std::max(std::min(wanted, most), 1 + random_() % most);
    for (size_t i = 0; i < count; ++i) {
      const auto at = held_.begin() + static_cast<ptrdiff_t>(random_() % held_.size());
      completions[i] = *at;
      held_.erase(at);
    }
    return count;
  }

  void wake() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    changed_.notify_all();
  }

  std::string_view name() const noexcept override { return "scrambled"; }

 private:
  ReadCompletion read(const ReadRequest& request) {
    size_t size = request.out.size();
    if (size > 2 * kPage && random_() % 4 == 0) size = kPage * (1 + random_() % (size / kPage - 1));
    if (size > 1 && size <= 2 * kPage && random_() % 4 == 0) size = 1 + random_() % (size - 1);
    const ssize_t got = ::pread(request.fd, request.out.data(), size, static_cast<off_t>(request.offset));
    return {request.tag, got < 0 ? -errno : static_cast<int32_t>(got)};
  }

  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::vector<ReadCompletion> held_;
  bool woken_ = false;
};

}  // namespace

std::unique_ptr<ReadEngine> make_scrambled_engine(uint32_t depth, uint64_t seed) {
  return std::make_unique<ScrambledEngine>(depth, seed);
}

}  // namespace fastshard::io
