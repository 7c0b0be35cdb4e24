// The rows of one batch where they lie in memory: in blocks that are kept, or read by themselves.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "ipc/array_view.h"
#include "pipeline/block_store.h"
#include "pipeline/gather.h"
#include "pipeline/located_rows.h"
#include "pipeline/row_reads.h"

namespace fastshard::pipeline {

class TakenRows {
 public:
  // All from whole blocks; these are got from `store`, and pinned.
  TakenRows(ShardSet& set, BlockStore& store, LocatedRows located);
  // Some or all read by themselves.
  TakenRows(ShardSet& set, BlockStore& store, std::shared_ptr<const RowReads::Batch> batch);
  TakenRows(const TakenRows&) = delete;
  TakenRows& operator=(const TakenRows&) = delete;

  // Where the values of each row of a column lie (by its place among the store's), whose rows are `width` bytes wide;
  // false where they do not lie so everywhere.
  [[nodiscard]] bool plain_sources(size_t column, int64_t width, std::span<const std::byte*> sources) const;
  // The rows of any column, in order. Views of rows that were read by themselves live as long as this.
  [[nodiscard]] std::vector<Run> runs(size_t column);
  // Throws at the first wrong value of what `runs` refers to.
  void check_values(size_t column) const;

 private:
  // Of a block that was read by rows: a view for each range, or one for all.
  struct Views {
    std::vector<ipc::LoadedColumn> loaded;
    bool by_rows = false;
  };

  void get_blocks();
  [[nodiscard]] bool by_rows(size_t block) const noexcept { return batch_ && batch_->plan().blocks[block].by_rows; }
  [[nodiscard]] Views load(size_t block, size_t column) const;

  ShardSet& set_;
  BlockStore& store_;
  const std::shared_ptr<const RowReads::Batch> batch_;
  const LocatedRows own_;
  const LocatedRows& located_;
  std::vector<std::shared_ptr<const LoadedBlock>> blocks_;  // of located_; null where rows were read
  std::deque<std::vector<Views>> views_;                    // of calls of `runs`
};

}  // namespace fastshard::pipeline
