// Blocks read into memory of our own: asked for ahead in plan order, read, and kept while the budget lasts.
//
// A block goes from kReading (waiting or in flight) to kRead; the first thread that needs it checks and decompresses it
// (kDecoding), and it is kReady. `get` always gets: a block that nobody asked for is read at once, before what was
// asked ahead, whatever the budget says, so no budget deadlocks; the budget decides what is kept, and how far ahead
// `request` may run.
//
// Where only some columns are wanted, the metadata of a block are read first, then the extents of its columns,
// neighbours in one read; blocks that are small, or of which most is wanted by the last one seen of their shard, are
// read whole.
//
// `stop` wakes everybody: waiting calls throw or return. The queue that reads is stopped before the store goes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ipc/array_view.h"
#include "pipeline/block_bytes.h"
#include "pipeline/read_queue.h"
#include "pipeline/shard_set.h"

namespace fastshard::pipeline {

struct LoadedBlock {
  ipc::Storage raw;                        // what the views of uncompressed columns refer to
  std::vector<ipc::LoadedColumn> columns;  // in the order of the store's columns
  std::vector<const std::byte*> plain;     // likewise: first value of rows of constant width without nulls, else null
  size_t bytes = 0;
};

struct BlockStoreOptions {
  size_t budget_bytes = size_t{256} << 20;  // of blocks kept, and of what was asked for and is not yet used
  size_t ahead_bytes = size_t{64} << 20;    // of what was asked for and is not yet used
  Verify verify = Verify::kOnce;            // when columns are compared with their hashes
};

struct BlockStoreStats {
  int64_t blocks_read = 0;
  int64_t partial_blocks = 0;     // of blocks_read: not whole, but the columns that are wanted
  int64_t blocks_read_again = 0;  // of blocks_read: the budget had not kept them
  int64_t blocks_used_again = 0;  // `get` found them kept
  int64_t held_bytes = 0;
};

class BlockStore {
 public:
  BlockStore(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns, ReadQueue& queue, BlockStoreOptions options);
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // Asks for a block ahead. Waits as `wait_for_room` does; returns at once if stopped.
  void request(uint32_t shard, uint32_t block);
  // The block, read if need be, for so many of its rows: once all were taken, it is the first to go. Throws Error
  // naming shard, block and offset.
  [[nodiscard]] std::shared_ptr<const LoadedBlock> get(uint32_t shard, uint32_t block, int64_t rows);
  // Whether a block is kept or was asked for, so that `get` needs no new read, as things stand.
  [[nodiscard]] bool has(uint32_t shard, uint32_t block) const;
  void stop() noexcept;

  // What others read ahead counts as well. Waits while `ahead_bytes` are waiting to be used; false if stopped.
  [[nodiscard]] bool wait_for_room();
  // So much more, or less, was asked for and is not yet used.
  void count_ahead(int64_t bytes);

  [[nodiscard]] BlockStoreStats stats() const;
  [[nodiscard]] const std::vector<uint32_t>& columns() const noexcept { return columns_; }
  [[nodiscard]] Verify verify() const noexcept { return options_.verify; }

 private:
  enum class State { kReading, kRead, kDecoding, kReady, kFailed };
  class Entry;
  using EntryRef = std::shared_ptr<Entry>;

  [[nodiscard]] EntryRef find_or_add(uint32_t shard, uint32_t block, bool urgent);
  [[nodiscard]] bool reads_whole(const Entry& entry);
  [[nodiscard]] std::vector<FileRange> wanted_ranges(const Entry& entry) const;
  void begin_columns(Entry& entry);
  void complete(Entry& entry);
  void fail(Entry& entry, std::exception_ptr error);
  [[nodiscard]] std::shared_ptr<const LoadedBlock> decode(Entry& entry) const;
  void finish(Entry& entry, State state, std::exception_ptr error);
  void evict();

  const std::shared_ptr<ShardSet> set_;
  const std::vector<uint32_t> columns_;
  const BlockStoreOptions options_;
  const bool projects_;  // not all columns are wanted
  ReadQueue& queue_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;                 // an entry left kReading or kDecoding, or the store stopped
  std::condition_variable room_;                    // less is waiting to be used
  std::unordered_map<uint64_t, EntryRef> entries_;  // by shard << 32 | block
  std::list<uint64_t> order_;                       // kept blocks, the last one goes first
  size_t held_ = 0;
  size_t ahead_ = 0;
  bool stopped_ = false;
  BlockStoreStats stats_;
  std::unordered_map<uint32_t, double> shares_;           // by shard: which part of its last block seen is wanted
  std::unordered_map<uint32_t, std::vector<bool>> seen_;  // by shard: blocks that were read before
};

}  // namespace fastshard::pipeline
