#include "pipeline/shared_batch.h"

#include <algorithm>
#include <new>

namespace fastshard::pipeline {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallestPiece = size_t{64} << 10;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

SharedBatch::SharedBatch(std::shared_ptr<SharedPool> pool, size_t expected_bytes)
    : BufferPool(0), pool_(std::move(pool)), expected_bytes_(expected_bytes), generation_(fork_generation()) {}

SharedBatch::~SharedBatch() {
  for (Piece& piece : pieces_) {
    if (generation_ == fork_generation()) {
      pool_->give_back(std::move(piece.memory));
    } else {
      (void)piece.memory.release();  // the parent's, whose lock may be held for ever
    }
  }
}

Buffer SharedBatch::lease(size_t bytes) {
  const size_t rounded = aligned(bytes);
  if (rounded < bytes) throw std::bad_alloc();
  if (pieces_.empty() || pieces_.back().memory->bytes().size() - pieces_.back().used < rounded)
    pieces_.push_back({pool_->take(std::max(rounded, expected_bytes_)), 0});
  Piece& piece = pieces_.back();
  std::byte* const data = piece.memory->bytes().data() + piece.used;
  piece.used += rounded;
  return {data, bytes, std::static_pointer_cast<SharedBatch>(shared_from_this())};
}

std::vector<std::span<std::byte>> SharedBatch::pieces() const {
  std::vector<std::span<std::byte>> spans;
  for (const Piece& piece : pieces_) spans.push_back(piece.memory->bytes());
  return spans;
}

std::vector<io::SharedTicket> SharedBatch::send(std::span<const uint32_t> numbers) {
  std::vector<io::SharedTicket> tickets;
  if (sent_) return tickets;
  sent_ = true;
  for (const uint32_t number : numbers) {
    Piece& piece = pieces_.at(number);
    tickets.push_back(piece.memory->send(piece.used));
  }
  return tickets;
}

std::shared_ptr<SharedBatch> SharedPool::batch(size_t expected_bytes) {
  // What is not touched costs nothing: room for batches above the mean, so that one piece serves most of them.
  return std::make_shared<SharedBatch>(shared_from_this(), std::max(kSmallestPiece, 2 * expected_bytes));
}

SharedPool::~SharedPool() {
  for (std::unique_ptr<io::SharedMemory>& piece : kept_) {
    if (!piece->free() && !piece->claimed() && !piece->retired()) (void)piece.release();  // somebody is to open it yet
  }
}

size_t SharedPool::fresh_pieces() {
  const std::lock_guard lock(mutex_);
  return fresh_;
}

std::unique_ptr<io::SharedMemory> SharedPool::take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_, [&](const std::unique_ptr<io::SharedMemory>& piece) {
      return piece->retired() ||
             (kept_.size() > kMostKept && (piece->claimed() || (piece->free() && piece->bytes().size() < bytes)));
    });
    // The last one that came back: its pages are the likeliest to be in a cache.
    for (size_t i = kept_.size(); i-- > 0;) {
      if (!kept_[i]->free() || kept_[i]->bytes().size() < bytes) continue;
      std::unique_ptr<io::SharedMemory> piece = std::move(kept_[i]);
      kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(i));
      return piece;
    }
    ++fresh_;
  }
  return std::make_unique<io::SharedMemory>(bytes);
}

void SharedPool::give_back(std::unique_ptr<io::SharedMemory> piece) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(piece));
  } catch (const std::bad_alloc&) {
    (void)piece.release();  // it may be on its way
  }
}

}  // namespace fastshard::pipeline
