// Rows of batches, read by themselves: for each batch one job, which reads the bytes of its rows and no more than the
// device wants, asked for ahead in plan order.
//
// Where the rows of a block lie, its metadata say; blocks whose metadata have the same hash share them, so that these
// are read once for all blocks alike. Columns whose rows have no constant width, and compressed ones, are read whole.
//
// A batch is asked for under its number. `take` always gets: a batch that nobody asked for is read at once. Memory of
// batches that were asked for and not yet taken counts in the store's `ahead_bytes`.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "pipeline/block_store.h"
#include "pipeline/buffer.h"
#include "pipeline/read_queue.h"
#include "pipeline/row_plan.h"

namespace fastshard::pipeline {

// What the metadata of some blocks say, as far as rows of the wanted columns are concerned.
struct RowLayout {
  struct Column {
    bool by_rows = false;  // else whole
    int64_t plain = -1;    // offset in the body of the first value of rows of constant width without nulls; -1: not so
  };
  ipc::BatchLayout batch;
  std::vector<Column> columns;  // in the order of the store's columns
};

class RowReads {
 public:
  class Batch;

  RowReads(std::shared_ptr<ShardSet> set, BlockStore& store, ReadQueue& queue, double visits);
  ~RowReads();
  RowReads(const RowReads&) = delete;
  RowReads& operator=(const RowReads&) = delete;

  // Asks for the rows of a batch ahead, and for the blocks that it takes whole. Waits as BlockStore::wait_for_room
  // does. Of no effect once that batch or a later one was taken: whoever makes it has asked.
  void request(uint64_t number, std::span<const int64_t> ids);
  // The rows of a batch, once each; what is taken whole is still to be got from the store. Throws Error naming shard,
  // block and offset.
  [[nodiscard]] std::shared_ptr<const Batch> take(uint64_t number, std::span<const int64_t> ids);
  void stop() noexcept;

  // Rows that were read by themselves, in some column at least.
  [[nodiscard]] int64_t rows_read() const noexcept { return rows_read_; }

 private:
  using Ref = std::shared_ptr<Batch>;
  struct Key {
    uint64_t metadata_hash;
    int64_t metadata_bytes;
    int64_t body_bytes;
    int64_t rows;
    bool operator==(const Key&) const = default;
  };
  struct HashOfKey {
    size_t operator()(const Key& key) const noexcept { return static_cast<size_t>(key.metadata_hash); }
  };
  using LayoutRef = std::shared_ptr<const RowLayout>;

  [[nodiscard]] static Key key_of(const BlockEntry& entry) noexcept;
  [[nodiscard]] LayoutRef make_layout(ipc::BatchLayout batch) const;
  // Of the I/O thread: what is known of a block; null where its metadata must be read.
  [[nodiscard]] LayoutRef layout_of(const BlockEntry& entry) const;
  void remember(const BlockEntry& entry, LayoutRef layout);
  void finish(Batch& batch, std::exception_ptr error);

  const std::shared_ptr<ShardSet> set_;
  BlockStore& store_;
  ReadQueue& queue_;
  RowPlanner planner_;
  const std::shared_ptr<BufferPool> memory_;

  std::mutex mutex_;
  std::condition_variable changed_;            // a batch was read or failed, or all was stopped
  std::unordered_map<uint64_t, Ref> batches_;  // asked for, not yet taken
  uint64_t frontier_ = 0;                      // batches below were taken, or are by whoever makes them
  bool stopped_ = false;
  std::atomic<int64_t> rows_read_{0};

  // Of the I/O thread alone:
  std::unordered_map<Key, LayoutRef, HashOfKey> layouts_;
  size_t layout_bytes_ = 0;
};

// One batch's rows, immutable once they are there.
class RowReads::Batch final : public ReadJob {
 public:
  Batch(RowReads& owner, RowPlan plan);

  void advance(ReadQueue& queue, std::vector<Part>& parts) override;
  void fail(std::exception_ptr error) noexcept override { owner_.finish(*this, std::move(error)); }

  [[nodiscard]] const RowPlan& plan() const noexcept { return plan_; }
  // Of a block that is read by rows:
  [[nodiscard]] const RowLayout& layout(size_t block) const noexcept { return *blocks_[block].layout; }
  // Bytes of its body, of rows or columns that were read.
  [[nodiscard]] ByteSpan body(size_t block, const ipc::BufferExtent& extent) const noexcept;

 private:
  friend class RowReads;
  struct Block {
    LayoutRef layout;
    BlockBytes bytes;
  };

  [[nodiscard]] const BlockEntry& entry(size_t block) const noexcept;
  [[nodiscard]] int64_t rows_read() const noexcept;
  void begin_metadata(ReadQueue& queue, std::vector<Part>& parts);
  void end_metadata();
  void begin_rows(ReadQueue& queue, std::vector<Part>& parts);
  [[nodiscard]] std::vector<FileRange> wanted_ranges(size_t block) const;

  RowReads& owner_;
  const RowPlan plan_;
  std::vector<Block> blocks_;  // of the plan; those taken whole stay empty
  Buffer memory_;              // of all these
  enum class Stage { kNew, kMetadata, kRows } stage_ = Stage::kNew;
  struct Metadata {
    size_t block;
    BlockBytes bytes;
  };
  std::vector<std::unique_ptr<Metadata>> metadata_;  // that are read first, each kind once

  // Under the owner's mutex:
  bool ready_ = false;
  std::exception_ptr error_;
  int64_t counted_ = 0;  // in the store's `ahead`
};

}  // namespace fastshard::pipeline
