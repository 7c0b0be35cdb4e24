#include "pipeline/awaited.h"

#include <memory>
#include <unordered_set>

namespace fastshard::pipeline {

std::string first_missing(ShardSet& set, std::span<const int64_t> ids) {
  std::unordered_set<uint64_t> seen;
  for (const int64_t id : ids) {
    const ShardPlace place = set.table().locate(id);
    const std::shared_ptr<Shard> shard = set.open_shard(place.shard);
    if (!shard) return std::string(set.table().path(place.shard)) + " (it is not open yet)";
    const uint32_t block = shard->locate(place.row).block;
    if (!seen.insert((uint64_t{place.shard} << 32) | block).second) continue;
    if (shard->is_resident(block)) continue;
    const ipc::BlockExtent& extent = shard->entry(block).extent;
    return shard->place(block) + ", bytes " + std::to_string(extent.offset) + " to " +
           std::to_string(extent.offset + extent.metadata_bytes + extent.body_bytes);
  }
  return {};
}

}  // namespace fastshard::pipeline
