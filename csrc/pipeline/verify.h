// The whole truth about one shard: everything that can be checked about it is, and each fault is one line of text with
// a code.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "ipc/schema.h"
#include "pipeline/file_index.h"
#include "pipeline/tables.h"

namespace fastshard::pipeline {

struct ShardFault {
  std::string code;
  std::string message;  // begins with the file's name
};

// The code of an error that kept a file from being read: its own, or "missing" or "unreadable".
[[nodiscard]] std::string code_of(const Error& error);

struct ShardReport {
  std::vector<ShardFault> faults;
  std::vector<ColumnStats> columns;  // what the shard adds to the statistics of index.json; of use where it is whole
};

[[nodiscard]] ShardReport verify_shard(const std::string& root, const ipc::Schema& schema, const ShardTable& table,
                                       size_t shard, const BlockTable& blocks);

}  // namespace fastshard::pipeline
