// What a batch waits for where reads go through mappings, which nobody can ask how far they are.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "pipeline/shard_set.h"

namespace fastshard::pipeline {

// Names the first block of the samples `ids` whose bytes are not in memory: shard, block, offset and bytes. Never
// waits: the shard where it is not open yet, nothing where all is there.
[[nodiscard]] std::string first_missing(ShardSet& set, std::span<const int64_t> ids);

}  // namespace fastshard::pipeline
