// Advice to the system on mapped shards: which bytes the batches ahead need, so that reads are under way before threads
// come to gather. Where samples are taken here and there, of each the pages of its rows; else whole blocks, or whole
// columns of them, once each.
//
// Advice changes nothing but time. Where the bytes are in memory, there is nothing to say: see `is_missing`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "pipeline/shard_set.h"

namespace fastshard::pipeline {

class MappedAhead {
 public:
  // `scattered`: batches take few samples of many blocks, in any order.
  MappedAhead(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns, bool scattered);

  // Whether some page of these samples, about, is not in memory. Throws as ShardSet::shard does.
  [[nodiscard]] bool is_missing(std::span<const int64_t> ids);
  // Throws as ShardSet::shard and Shard::column do.
  void advise(std::span<const int64_t> ids);

 private:
  [[nodiscard]] bool needs_whole(Shard& shard, uint32_t block) const;

  const std::shared_ptr<ShardSet> set_;
  const std::vector<uint32_t> columns_;
  const bool scattered_;
  std::unordered_map<uint32_t, std::vector<bool>> advised_;  // by shard: blocks, as a whole
};

}  // namespace fastshard::pipeline
