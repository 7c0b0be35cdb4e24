// Memory that one process fills and another reads where it lies: an anonymous file that both map. It has no name in any
// file system, needs no room in /dev/shm, and is gone when nobody maps it.
//
// Its first bytes say whose it is:
//   free      the sender's, who may fill it,
//   sent      on its way: the state is the number of the ticket, which is good for one receiver,
//   claimed   the receiver's, until it lets go: then free again, or
//   retired   nobody's: the receiver was forked meanwhile, and its child may read on. The sender drops it.
// The sender finds that out when it looks; no process waits for another, and one that dies keeps what it had.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace fastshard::io {

// What a receiver needs to know. Good while the sender lives, once.
struct SharedTicket {
  int64_t pid = 0;
  int32_t fd = -1;  // of the sender
  uint64_t cookie = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;
};

struct SharedHeader;

// The sender's side.
class SharedMemory {
 public:
  // Throws Error(kIo) where the system has no such memory.
  explicit SharedMemory(size_t capacity);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept;
  [[nodiscard]] bool free() const noexcept;
  [[nodiscard]] bool retired() const noexcept;
  // The receiver maps it: the sender may let go.
  [[nodiscard]] bool claimed() const noexcept;

  // Hands over the first `bytes`; it must be free.
  [[nodiscard]] SharedTicket send(size_t bytes) noexcept;

 private:
  [[nodiscard]] SharedHeader* header() const noexcept { return reinterpret_cast<SharedHeader*>(mapping_.data()); }
  std::span<std::byte> mapping_;
  int fd_ = -1;
};

// The receiver's side: claims, and lets go when it is destroyed.
class ReceivedMemory {
 public:
  // Throws Error(kIo) where the sender is gone, Error(kInvalid) where the ticket was used before.
  explicit ReceivedMemory(const SharedTicket& ticket);
  ~ReceivedMemory();
  ReceivedMemory(const ReceivedMemory&) = delete;
  ReceivedMemory& operator=(const ReceivedMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept;

 private:
  std::span<std::byte> mapping_;
  uint64_t generation_;
  uint64_t forks_;
};

}  // namespace fastshard::io
