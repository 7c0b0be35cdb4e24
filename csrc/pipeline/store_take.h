// Takes samples from blocks that an engine read, as ShardSet::take does from mapped ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/block_store.h"
#include "pipeline/column.h"

namespace fastshard::pipeline {

// The store's columns of the samples `ids`, each below set.rows(), in memory of `into`. Throws as BlockStore::get does.
[[nodiscard]] std::vector<Column> take(ShardSet& set, BlockStore& store, std::span<const int64_t> ids,
                                       BufferPool& into);

// Asks the store for the blocks of `ids`, in the order in which they are needed. Waits as BlockStore::request does.
void request_blocks(ShardSet& set, BlockStore& store, std::span<const int64_t> ids);

}  // namespace fastshard::pipeline
