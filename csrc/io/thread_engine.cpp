#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "io/read_engine.h"

namespace fastshard::io {
namespace {

int32_t read_at(const ReadRequest& request) {
  // One pread takes at most 0x7ffff000 bytes; what is missing is asked for again by the caller.
  const size_t size = std::min<size_t>(request.out.size(), 0x7ffff000);
  for (;;) {
    const ssize_t got = ::pread(request.fd, request.out.data(), size, static_cast<off_t>(request.offset));
    if (got >= 0) return static_cast<int32_t>(got);
    if (errno != EINTR) return -errno;
  }
}

class ThreadEngine final : public ReadEngine {
 public:
  ThreadEngine(uint32_t threads, uint32_t depth) : depth_(std::max(1U, depth)) {
    for (uint32_t i = 0; i < std::max(1U, threads); ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    asked_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  size_t submit(std::span<const ReadRequest> requests) override {
    size_t taken = 0;
    {
      const std::lock_guard lock(mutex_);
      taken = std::min(requests.size(), depth_ - in_flight_);
      waiting_.insert(waiting_.end(), requests.begin(), requests.begin() + static_cast<ptrdiff_t>(taken));
      in_flight_ += taken;
    }
    // No more threads than there are reads for: with a deep queue most threads find the next one when they end another.
    for (size_t i = 0; i < std::min(taken, threads_.size()); ++i) asked_.notify_one();
    return taken;
  }

  size_t wait(std::span<ReadCompletion> completions, size_t at_least, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const size_t wanted = std::min(at_least, completions.size());
    done_.wait_until(lock, deadline, [&] { return finished_.size() >= wanted || woken_; });
    woken_ = false;
    const size_t count = std::min(finished_.size(), completions.size());
    std::copy_n(finished_.begin(), count, completions.begin());
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(count));
    in_flight_ -= count;
    return count;
  }

  void wake() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    done_.notify_all();
  }

  std::string_view name() const noexcept override { return "threads"; }

 private:
  void work() {
    pthread_setname_np(pthread_self(), "fs-pread");
    std::unique_lock lock(mutex_);
    for (;;) {
      asked_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
      if (stopped_) return;
      const ReadRequest request = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const ReadCompletion completion{request.tag, read_at(request)};
      lock.lock();
      finished_.push_back(completion);
      done_.notify_all();
    }
  }

  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable done_;
  std::deque<ReadRequest> waiting_;
  std::deque<ReadCompletion> finished_;
  size_t in_flight_ = 0;  // submitted and not yet handed back
  bool woken_ = false;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<ReadEngine> make_thread_engine(uint32_t threads, uint32_t depth) {
  return std::make_unique<ThreadEngine>(threads, depth);
}

}  // namespace fastshard::io
