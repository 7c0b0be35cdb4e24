#include "io/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>

#include "base/error.h"
#include "base/fork.h"

namespace fastshard::io {
namespace {

constexpr size_t kHeader = 4096;  // keeps what follows aligned
constexpr uint64_t kFree = 0;
constexpr uint64_t kClaimed = 1;
constexpr uint64_t kRetired = 2;
constexpr uint64_t kFirstTicket = 16;

[[noreturn]] void fail(const char* what, int error) {
  throw Error(ErrorKind::kIo, "shared_memory", std::string(what) + ": " + std::strerror(error));
}

uint64_t random_cookie() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

struct SharedHeader {
  uint64_t cookie = 0;                  // tells this memory from another one of the same descriptor number
  uint64_t last_ticket = kFirstTicket;  // the sender's
  std::atomic<uint64_t> state{kFree};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

SharedMemory::SharedMemory(size_t capacity) {
#ifdef __linux__
  const size_t size = kHeader + capacity;
  if (size < capacity) fail("making memory to share between processes", ENOMEM);
  fd_ = ::memfd_create("fastshard-batch", MFD_CLOEXEC);
  if (fd_ < 0) fail("making memory to share between processes (memfd_create)", errno);
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    ::close(fd_);
    fail("making memory to share between processes (ftruncate)", error);
  }
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (at == MAP_FAILED) {
    const int error = errno;
    ::close(fd_);
    fail("making memory to share between processes (mmap)", error);
  }
  mapping_ = {static_cast<std::byte*>(at), size};
  new (at) SharedHeader();
  header()->cookie = random_cookie();
#else
  (void)capacity;
  fail("making memory to share between processes", ENOSYS);
#endif
}

SharedMemory::~SharedMemory() {
  if (mapping_.empty()) return;
  ::munmap(mapping_.data(), mapping_.size());
  ::close(fd_);
}

std::span<std::byte> SharedMemory::bytes() const noexcept { return mapping_.subspan(kHeader); }
bool SharedMemory::free() const noexcept { return header()->state.load(std::memory_order_acquire) == kFree; }
bool SharedMemory::retired() const noexcept { return header()->state.load(std::memory_order_acquire) == kRetired; }
bool SharedMemory::claimed() const noexcept { return header()->state.load(std::memory_order_acquire) == kClaimed; }

SharedTicket SharedMemory::send(size_t bytes) noexcept {
  const uint64_t number = ++header()->last_ticket;
  header()->state.store(number, std::memory_order_release);
  return {::getpid(), fd_, header()->cookie, number, bytes};
}

ReceivedMemory::ReceivedMemory(const SharedTicket& ticket) : generation_(fork_generation()), forks_(forks_begun()) {
  const std::string path = "/proc/" + std::to_string(ticket.pid) + "/fd/" + std::to_string(ticket.fd);
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail("a batch of another process: its memory cannot be opened, the process that made it is gone", errno);
  struct stat status;
  const size_t size = kHeader + ticket.bytes;
  void* at = MAP_FAILED;
  int error = EINVAL;
  if (::fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_size) >= size && size > ticket.bytes) {
    int flags = MAP_SHARED;
#ifdef MAP_POPULATE
    flags |= MAP_POPULATE;  // all of it is read
#endif
    at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    error = errno;
  }
  ::close(fd);
  if (at == MAP_FAILED) fail("a batch of another process: its memory cannot be mapped", error);
  mapping_ = {static_cast<std::byte*>(at), size};
  auto* const remote = static_cast<SharedHeader*>(at);
  uint64_t expected = ticket.number;
  if (remote->cookie != ticket.cookie || ticket.number <= kFirstTicket ||
      !remote->state.compare_exchange_strong(expected, kClaimed, std::memory_order_acq_rel)) {
    ::munmap(mapping_.data(), mapping_.size());
    throw Error(ErrorKind::kInvalid, "shared_memory",
                "a batch of another process can be unpickled once, and this one was; copy the batch instead");
  }
}

ReceivedMemory::~ReceivedMemory() {
  if (generation_ == fork_generation()) {  // a child of the receiver has nothing to give back
    const bool forked = forks_ != forks_begun();
    reinterpret_cast<SharedHeader*>(mapping_.data())->state.store(forked ? kRetired : kFree, std::memory_order_release);
  }
  ::munmap(mapping_.data(), mapping_.size());
}

std::span<std::byte> ReceivedMemory::bytes() const noexcept { return mapping_.subspan(kHeader); }

}  // namespace fastshard::io
