// Reads one Arrow IPC file whole, checks all of its structure, and says what the tables of docs/format.md hold about
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "ipc/array_view.h"
#include "ipc/file.h"

namespace fastshard::pipeline {

struct ColumnStats {
  int64_t null_count = 0;
  int64_t child_null_count = 0;
  int64_t min_length = -1;  // -1: no value of variable length
  int64_t max_length = -1;
};

struct IndexedBlock {
  ipc::BlockExtent extent;
  int64_t rows = 0;
  uint64_t metadata_hash = 0;
  std::vector<uint64_t> column_hashes;
};

struct FileIndex {
  std::vector<std::byte> schema_message;
  ipc::Schema schema;
  int64_t rows = 0;
  int64_t bytes = 0;
  int64_t raw_bytes = 0;
  int64_t block_rows = 0;  // R, or 0 where irregular
  Hash128 hash{};
  std::vector<IndexedBlock> blocks;
  std::vector<ColumnStats> columns;
};

// Throws Error(kCorrupt | kUnsupported | kIo | kNotFound); messages begin with `name`.
[[nodiscard]] FileIndex index_file(const std::string& path, const std::string& name, ipc::FileKind kind);

// Adds one block's column to its statistics. `view` has passed check_values.
void add_statistics(const ipc::ArrayView& view, ColumnStats& stats);

}  // namespace fastshard::pipeline
