// Samples by id as rows of blocks, the blocks numbered in the order in which they are met.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/shard.h"

namespace fastshard::pipeline {

class ShardSet;

struct LocatedRow {
  uint32_t block;  // place in LocatedRows::blocks
  int64_t row;
};

struct LocatedRows {
  struct Block {
    Shard* shard;
    uint32_t block;
  };
  std::vector<std::shared_ptr<Shard>> shards;  // pinned
  std::vector<Block> blocks;                   // each once
  std::unique_ptr<LocatedRow[]> memory;
  std::span<const LocatedRow> rows;  // one for each id
};

// Each id is below set.rows(). Throws as ShardSet::shard does.
[[nodiscard]] LocatedRows locate_rows(ShardSet& set, std::span<const int64_t> ids);

// Where the values of rows of constant width lie, from where the first value of each block does.
inline void row_sources(const LocatedRows& located, std::span<const std::byte* const> first_values, int64_t width,
                        const std::byte** sources) noexcept {
  const std::byte* const* const first = first_values.data();
  for (const LocatedRow& row : located.rows) *sources++ = first[row.block] + row.row * width;
}

}  // namespace fastshard::pipeline
