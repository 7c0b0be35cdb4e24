// Blocks read by an engine into memory of our own: asked for ahead in plan order, read, and kept while the budget
// lasts.
//
// One I/O thread owns the engine. A block goes from kReading (queued or in flight) to kRead; the first thread that
// needs it checks and decompresses it (kDecoding), and it is kReady. `get` always gets: a block that nobody asked for
// is read at once, before what was asked ahead, whatever the budget says, so no budget deadlocks; the budget decides
// what is kept, and how far ahead `request` may run.
//
// Where only some columns are wanted, the metadata of a block are read first, then the extents of its columns,
// neighbours in one read; blocks that are small, or of which most is wanted by the last one seen of their shard, are
// read whole.
//
// `stop` wakes everybody: waiting calls throw or return, the I/O thread ends. A read that outlives its deadline fails
// its block and keeps its memory until it comes back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "io/direct_file.h"
#include "io/read_engine.h"
#include "ipc/array_view.h"
#include "pipeline/block_bytes.h"
#include "pipeline/shard_set.h"

namespace fastshard::pipeline {

struct LoadedBlock {
  ipc::Storage raw;                        // what the views of uncompressed columns refer to
  std::vector<ipc::LoadedColumn> columns;  // in the order of the store's columns
  std::vector<const std::byte*> plain;     // likewise: first value of rows of constant width without nulls, else null
  size_t bytes = 0;
};

struct BlockStoreOptions {
  size_t budget_bytes = size_t{256} << 20;   // of blocks kept, and of those asked for and not yet used
  size_t ahead_bytes = size_t{64} << 20;     // of blocks asked for and not yet used
  uint32_t depth = 16;                       // reads in flight
  bool direct = true;                        // past the page cache
  Verify verify = Verify::kOnce;             // when columns are compared with their hashes
  std::chrono::nanoseconds read_timeout{0};  // of one read; 0: none
};

struct BlockStoreStats {
  int64_t blocks_read = 0;
  int64_t bytes_read = 0;
  int64_t partial_blocks = 0;     // of blocks_read: not whole, but the columns that are wanted
  int64_t blocks_read_again = 0;  // of blocks_read: the budget had not kept them
  int64_t blocks_used_again = 0;  // `get` found them kept
  int64_t held_bytes = 0;
  int64_t decode_ns = 0;       // checking and decompressing, of all threads
  int64_t buffered_files = 0;  // opened without O_DIRECT, or changed to it
};

class BlockStore {
 public:
  BlockStore(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns, std::unique_ptr<io::ReadEngine> engine,
             BlockStoreOptions options);
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // Asks for a block ahead. Waits while as much as `ahead_bytes` is waiting to be used; returns at once if stopped.
  void request(uint32_t shard, uint32_t block);
  // The block, read if need be. Throws Error naming shard, block and offset.
  [[nodiscard]] std::shared_ptr<const LoadedBlock> get(uint32_t shard, uint32_t block);
  void stop() noexcept;

  [[nodiscard]] BlockStoreStats stats() const;
  [[nodiscard]] const std::vector<uint32_t>& columns() const noexcept { return columns_; }

 private:
  enum class State { kReading, kRead, kDecoding, kReady, kFailed };
  struct Entry;
  using EntryRef = std::shared_ptr<Entry>;
  struct Read {
    EntryRef entry;
    size_t part = 0;  // of entry->bytes_of
    uint32_t attempts = 0;
    std::chrono::steady_clock::time_point begun{};
  };

  void run();
  void begin_reads(std::vector<io::ReadRequest>& requests);
  void begin_parts(const EntryRef& entry, BlockBytes bytes);
  [[nodiscard]] BlockBytes first_bytes(const Entry& entry);
  [[nodiscard]] BlockBytes column_bytes(const EntryRef& entry);
  void handle(const io::ReadCompletion& completion, std::vector<io::ReadRequest>& requests);
  void complete(const EntryRef& entry);
  void fail(const EntryRef& entry, std::exception_ptr error);
  void expire();
  [[nodiscard]] io::Deadline next_deadline() const;
  [[nodiscard]] EntryRef find_or_queue(uint32_t shard, uint32_t block, bool urgent, bool& is_new);
  [[nodiscard]] io::ReadRequest request_rest(const Read& read);
  [[nodiscard]] ipc::BatchLayout parse_layout(const Entry& entry) const;
  [[nodiscard]] std::shared_ptr<const LoadedBlock> decode(Entry& entry) const;
  void finish(const EntryRef& entry, State state, std::exception_ptr error);
  void evict();
  [[nodiscard]] std::shared_ptr<io::DirectFile> file_of(const Shard& shard);

  const std::shared_ptr<ShardSet> set_;
  const std::vector<uint32_t> columns_;
  const BlockStoreOptions options_;
  const bool projects_;  // not all columns are wanted
  std::unique_ptr<io::ReadEngine> engine_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;                 // an entry left kReading or kDecoding, or the store stopped
  std::condition_variable room_;                    // less is waiting to be used
  std::unordered_map<uint64_t, EntryRef> entries_;  // by shard << 32 | block
  std::list<uint64_t> order_;                       // kept blocks, most recently used first
  std::deque<EntryRef> queue_;                      // not yet given to the engine
  size_t held_ = 0;
  size_t ahead_ = 0;
  bool stopped_ = false;
  BlockStoreStats stats_;
  std::unordered_map<uint32_t, double> shares_;           // by shard: which part of its last block seen is wanted
  std::unordered_map<uint32_t, std::vector<bool>> seen_;  // by shard: blocks that were read before

  // Of the I/O thread alone:
  std::unordered_map<uint64_t, Read> in_flight_;    // by tag
  std::deque<Read> parts_;                          // to be read next, before the queue
  std::unordered_map<uint64_t, EntryRef> overdue_;  // failed by their deadline, memory still in use
  uint64_t next_tag_ = 0;
  std::unordered_map<uint32_t, std::shared_ptr<io::DirectFile>> files_;
  std::thread thread_;
};

}  // namespace fastshard::pipeline
