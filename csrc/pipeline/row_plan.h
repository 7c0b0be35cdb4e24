// What to read for one batch: of each block that it takes from, the rows alone or the whole block.
//
// A block is read by rows where that costs less than the share of the whole block that falls to one batch: a read costs
// its bytes and as much as kReadCost bytes, and a block that is read whole serves `visits` batches while it is kept.
// Blocks that are kept, or whose hashes must be compared first, are taken whole.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "pipeline/block_store.h"
#include "pipeline/located_rows.h"

namespace fastshard::pipeline {

// So many bytes could be read in the time that one read more costs.
constexpr int64_t kReadCost = int64_t{16} << 10;

// Consecutive rows of a block.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

struct RowPlan {
  struct Block {
    bool by_rows = false;
    uint32_t first_range = 0;
    uint32_t end_range = 0;
  };

  LocatedRows located;
  std::vector<Block> blocks;       // of located.blocks
  std::vector<RowRange> ranges;    // ascending within a block; each row of a block read by rows lies in one
  std::vector<uint32_t> range_of;  // of located.rows
  int64_t bytes = 0;               // about, of what is read by rows
};

class RowPlanner {
 public:
  // `visits` is above 0, and 1 or more but for tests.
  RowPlanner(std::shared_ptr<ShardSet> set, const BlockStore& store, double visits);

  // Throws as ShardSet::shard does.
  [[nodiscard]] RowPlan plan(std::span<const int64_t> ids) const;
  // Blocks of a shard turned out to be compressed: plans from now on take them whole.
  void found_compressed(uint32_t shard);

 private:
  [[nodiscard]] bool by_rows(const LocatedRows::Block& block, std::span<const RowRange> ranges, int64_t& bytes) const;
  [[nodiscard]] bool needs_whole(const LocatedRows::Block& block) const;

  const std::shared_ptr<ShardSet> set_;
  const BlockStore& store_;
  const double visits_;
  std::vector<int64_t> bits_;  // of a row of each of the store's columns; -1 where they vary
  bool varies_ = false;        // one of these
  bool projects_ = false;      // not all columns are wanted
  mutable std::mutex mutex_;
  std::unordered_set<uint32_t> compressed_;  // shards, under the mutex
  int64_t fixed_bits_ = 0;                   // of a row, all columns of the data set whose rows have a constant width
};

}  // namespace fastshard::pipeline
