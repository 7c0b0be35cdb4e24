#include "io/read_engine.h"

#ifdef FASTSHARD_HAS_URING

#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/memory.h"

namespace fastshard::io {
namespace {

constexpr uint64_t kWakeTag = ~uint64_t{0};

#ifdef FASTSHARD_URING_REGISTERS

// Regions of memory whose pages the kernel knows, so that it does not look them up for each read. They are made known
// when reads first go there, once an engine has read enough to be worth it.
class RegisteredRegions {
 public:
  RegisteredRegions(io_uring& ring, int64_t after_bytes) : ring_(ring), after_bytes_(after_bytes) {}

  // The number under which the kernel knows the memory, -1 if it does not.
  [[nodiscard]] int number_of(std::span<const std::byte> out) {
    const auto holds = [&](const PinnedRegion& region) {
      return out.data() >= region.bytes().data() && out.data() < region.bytes().data() + region.bytes().size();
    };
    if (last_ < regions_.size() && holds(regions_[last_])) return static_cast<int>(last_);
    last_ = static_cast<size_t>(std::find_if(regions_.begin(), regions_.end(), holds) - regions_.begin());
    if (last_ == regions_.size() && !add(out.data())) return -1;
    return static_cast<int>(last_);
  }

  void count(size_t bytes) noexcept { after_bytes_ -= static_cast<int64_t>(bytes); }

 private:
  static constexpr unsigned kMost = 128;

  // Appends the region, unless there is none, or the system does not want more of them.
  bool add(const std::byte* data) {
    if (refused_ || after_bytes_ > 0) return false;
    std::optional<PinnedRegion> region = pin_region(data);
    if (!region) return false;
    const std::span<std::byte> bytes = region->bytes();
    if (regions_.empty()) refused_ = io_uring_register_buffers_sparse(&ring_, kMost) < 0;
    refused_ = refused_ || regions_.size() == kMost || (regions_.size() + 1) * bytes.size() > may_lock();
    if (refused_) return false;
    const iovec memory{bytes.data(), bytes.size()};
    __u64 tag = 0;
    const auto number = static_cast<unsigned>(regions_.size());
    regions_.reserve(regions_.size() + 1);
    refused_ = io_uring_register_buffers_update_tag(&ring_, number, &memory, &tag, 1) != 1;
    if (!refused_) regions_.push_back(std::move(*region));
    return !refused_;
  }

  // What the kernel locks is counted for the user: others, who need it more, have half of it.
  static size_t may_lock() noexcept {
    rlimit limit{};
    if (::geteuid() == 0 || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
      return SIZE_MAX;  // the kernel decides
    return limit.rlim_cur / 2;
  }

  io_uring& ring_;
  int64_t after_bytes_;
  bool refused_ = false;
  size_t last_ = 0;
  std::vector<PinnedRegion> regions_;  // by number
};

#else

class RegisteredRegions {
 public:
  RegisteredRegions(io_uring&, int64_t) {}
  [[nodiscard]] int number_of(std::span<const std::byte>) const noexcept { return -1; }
  void count(size_t) noexcept {}
};

#endif

class UringEngine final : public ReadEngine {
 public:
  // Throws nothing; `error` is 0 or what the kernel answered.
  UringEngine(uint32_t depth, int64_t register_after, int& error)
      : depth_(std::max(1U, depth)), registered_(ring_, register_after) {
    error = io_uring_queue_init(static_cast<unsigned>(depth_) + 1, &ring_, 0);  // one more for the wake-up
    if (error != 0) return;
    made_ = true;
    wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd_ < 0) {
      error = -errno;
      return;
    }
    io_uring_ring_dontfork(&ring_);
    arm_wake();
    const int submitted = io_uring_submit(&ring_);
    if (submitted < 0) error = submitted;
  }
  ~UringEngine() override {
    // Reads in flight write into the caller's memory: they are waited for before the ring goes.
    while (made_ && in_flight_ > 0) {
      io_uring_cqe* completion = nullptr;
      if (io_uring_wait_cqe(&ring_, &completion) != 0) break;
      if (io_uring_cqe_get_data64(completion) != kWakeTag) --in_flight_;
      io_uring_cqe_seen(&ring_, completion);
    }
    if (made_) io_uring_queue_exit(&ring_);
    if (wake_fd_ >= 0) ::close(wake_fd_);
  }

  size_t submit(std::span<const ReadRequest> requests) override {
    size_t taken = 0;
    while (taken < requests.size() && in_flight_ < depth_) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) break;
      const ReadRequest& request = requests[taken++];
      const auto size = static_cast<unsigned>(std::min<size_t>(request.out.size(), 0x7ffff000));
      if (const int number = registered_.number_of(request.out); number >= 0) {
        io_uring_prep_read_fixed(entry, request.fd, request.out.data(), size, request.offset, number);
        ++fixed_reads_;
      } else {
        io_uring_prep_read(entry, request.fd, request.out.data(), size, request.offset);
        registered_.count(size);
      }
      io_uring_sqe_set_data64(entry, request.tag);
      ++in_flight_;
    }
    if (taken > 0) flush();
    return taken;
  }

  size_t wait(std::span<ReadCompletion> completions, size_t at_least, Deadline deadline) override {
    const size_t wanted = std::min(at_least, completions.size());
    size_t count = 0;
    bool woken = false;
    while (count < completions.size()) {
      io_uring_cqe* completion = nullptr;
      int status = io_uring_peek_cqe(&ring_, &completion);
      if (status == -EAGAIN) {
        if (count >= wanted || woken) break;
        status = wait_one(&completion, deadline);
        if (status == -EINTR) continue;
        if (status != 0) break;  // -ETIME: the deadline
      }
      const uint64_t tag = io_uring_cqe_get_data64(completion);
      const int32_t result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (tag == kWakeTag) {
        woken = true;
        uint64_t drained = 0;
        (void)!::read(wake_fd_, &drained, sizeof(drained));
        arm_wake();
        flush();
        continue;
      }
      completions[count++] = {tag, result};
      --in_flight_;
    }
    return count;
  }

  void wake() noexcept override {
    const uint64_t one = 1;
    (void)!::write(wake_fd_, &one, sizeof(one));
  }

  std::string_view name() const noexcept override { return "uring"; }
  int64_t registered_reads() const noexcept override { return fixed_reads_; }

 private:
  void arm_wake() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return;
    io_uring_prep_poll_add(entry, wake_fd_, POLLIN);
    io_uring_sqe_set_data64(entry, kWakeTag);
  }

  void flush() {
    int status = 0;
    do {
      status = io_uring_submit(&ring_);
    } while (status == -EINTR || status == -EAGAIN || status == -EBUSY);
  }

  int wait_one(io_uring_cqe** completion, Deadline deadline) {
    if (deadline == Deadline::max()) return io_uring_wait_cqe(&ring_, completion);
    const auto left = std::max(Deadline::duration::zero(), deadline - std::chrono::steady_clock::now());
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    __kernel_timespec timeout{};
    timeout.tv_sec = nanoseconds / 1000000000;
    timeout.tv_nsec = nanoseconds % 1000000000;
    return io_uring_wait_cqe_timeout(&ring_, completion, &timeout);
  }

  const size_t depth_;
  io_uring ring_{};
  bool made_ = false;
  int wake_fd_ = -1;
  size_t in_flight_ = 0;
  std::atomic<int64_t> fixed_reads_{0};
  RegisteredRegions registered_;
};

}  // namespace

std::unique_ptr<ReadEngine> make_uring_engine(uint32_t depth, std::string& reason, int64_t register_after) {
  int error = 0;
  auto engine = std::make_unique<UringEngine>(depth, register_after, error);
  if (error == 0) return engine;
  reason = std::string("io_uring is not to be had: ") + std::strerror(-error);
  return nullptr;
}

}  // namespace fastshard::io

#else

namespace fastshard::io {

std::unique_ptr<ReadEngine> make_uring_engine(uint32_t, std::string& reason, int64_t) {
  reason = "this build of fastshard has no liburing";
  return nullptr;
}

}  // namespace fastshard::io

#endif
