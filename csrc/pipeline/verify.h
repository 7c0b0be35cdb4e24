// The whole truth about one shard: everything that can be checked about it is, and each fault is one line of text with
// a code.
#pragma once

#include <string>
#include <vector>

#include "ipc/schema.h"
#include "pipeline/tables.h"

namespace fastshard::pipeline {

struct ShardFault {
  std::string code;
  std::string message;  // begins with the file's name
};

[[nodiscard]] std::vector<ShardFault> verify_shard(const std::string& root, const ipc::Schema& schema,
                                                   const ShardTable& table, size_t shard, const BlockTable& blocks);

}  // namespace fastshard::pipeline
