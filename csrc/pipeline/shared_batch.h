// Batches gathered where another process can read them: a DataLoader worker fills them, the process that trains maps
// them, and neither copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "io/shared_memory.h"
#include "pipeline/buffer.h"

namespace fastshard::pipeline {

class SharedPool;

// The memory of one batch. Buffers that it leases keep it alive; so does whoever is about to send it. When all have let
// go, its pieces return to the pool, which uses them again once the receiver has let go as well.
//
// One thread leases at a time.
class SharedBatch final : public BufferPool {
 public:
  SharedBatch(std::shared_ptr<SharedPool> pool, size_t expected_bytes);
  ~SharedBatch() override;

  [[nodiscard]] Buffer lease(size_t bytes) override;

  // Of each piece the bytes that it may have; an address in one of them lies in this batch.
  [[nodiscard]] std::vector<std::span<std::byte>> pieces() const;
  // Hands the pieces with these numbers to another process, once: none if they were sent before.
  [[nodiscard]] std::vector<io::SharedTicket> send(std::span<const uint32_t> numbers);

 private:
  struct Piece {
    std::unique_ptr<io::SharedMemory> memory;
    size_t used = 0;
  };

  const std::shared_ptr<SharedPool> pool_;
  const size_t expected_bytes_;
  const uint64_t generation_;
  std::vector<Piece> pieces_;
  bool sent_ = false;
};

// Keeps the memory of past batches for the next: fresh pages cost more than the copy into them. Thread-safe. Memory
// that is on its way to a receiver stays open for it, also when the pool ends.
class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  [[nodiscard]] static std::shared_ptr<SharedPool> make() { return std::shared_ptr<SharedPool>(new SharedPool()); }
  ~SharedPool();
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  // For a batch of about so many bytes. Throws Error(kIo) where the system has no memory to share.
  [[nodiscard]] std::shared_ptr<SharedBatch> batch(size_t expected_bytes);
  // Pieces that were made because none was free; for tests.
  [[nodiscard]] size_t fresh_pieces();

 private:
  friend class SharedBatch;
  static constexpr size_t kMostKept = 32;  // a piece costs a descriptor
  SharedPool() = default;
  [[nodiscard]] std::unique_ptr<io::SharedMemory> take(size_t bytes);
  void give_back(std::unique_ptr<io::SharedMemory> piece) noexcept;

  std::mutex mutex_;
  std::vector<std::unique_ptr<io::SharedMemory>> kept_;  // free, or with a receiver
  size_t fresh_ = 0;
};

}  // namespace fastshard::pipeline
