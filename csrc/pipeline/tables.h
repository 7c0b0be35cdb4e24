// The shard table and the block table of docs/format.md, sections 3 and 4, checked and in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "ipc/file.h"

namespace fastshard::pipeline {

struct ShardPlace {
  uint32_t shard = 0;
  int64_t row = 0;
};

class ShardTable {
 public:
  // Throws Error(kCorrupt), naming the file `name`. `rows` and `shards` are the totals of index.json.
  [[nodiscard]] static ShardTable parse(ByteSpan file, const std::string& name, int64_t rows, int64_t shards);

  [[nodiscard]] size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] int64_t total_rows() const noexcept { return first_row_.back(); }
  [[nodiscard]] int64_t first_row(size_t shard) const noexcept { return first_row_[shard]; }
  [[nodiscard]] int64_t rows(size_t shard) const noexcept { return first_row_[shard + 1] - first_row_[shard]; }
  [[nodiscard]] int64_t bytes(size_t shard) const noexcept { return bytes_[shard]; }
  [[nodiscard]] int64_t blocks(size_t shard) const noexcept { return blocks_[shard]; }
  [[nodiscard]] int64_t block_rows(size_t shard) const noexcept { return block_rows_[shard]; }
  [[nodiscard]] int64_t raw_bytes(size_t shard) const noexcept { return raw_bytes_[shard]; }
  [[nodiscard]] int64_t table_offset(size_t shard) const noexcept { return table_offset_[shard]; }
  [[nodiscard]] int64_t table_bytes(size_t shard) const noexcept { return table_bytes_[shard]; }
  [[nodiscard]] uint64_t table_hash(size_t shard) const noexcept { return table_hash_[shard]; }
  [[nodiscard]] const Hash128& hash(size_t shard) const noexcept { return hash_[shard]; }
  [[nodiscard]] std::string_view path(size_t shard) const noexcept {
    return std::string_view(paths_).substr(path_end_[shard], path_end_[shard + 1] - path_end_[shard]);
  }

  // Where sample `id` lies; 0 <= id < total_rows().
  [[nodiscard]] ShardPlace locate(int64_t id) const noexcept;

  // docs/format.md section 5; of the first `shards` shards, at most size(), which a data set had before it grew.
  [[nodiscard]] Hash128 fingerprint(size_t shards) const;
  [[nodiscard]] Hash128 fingerprint() const { return fingerprint(size()); }

 private:
  void append(const ipc::Outline& outline, ByteSpan file, size_t block);

  std::vector<int64_t> first_row_{0};
  std::vector<int64_t> bytes_, blocks_, block_rows_, raw_bytes_, table_offset_, table_bytes_;
  std::vector<uint64_t> table_hash_;
  std::vector<Hash128> hash_;
  std::string paths_;
  std::vector<size_t> path_end_{0};
};

struct BlockEntry {
  ipc::BlockExtent extent;
  int64_t first_row = 0;  // in the shard
  int64_t rows = 0;
  uint64_t metadata_hash = 0;
};

struct BlockTable {
  std::vector<BlockEntry> blocks;
  std::vector<uint64_t> column_hashes;  // [blocks x columns]

  // The entries of one shard: `message` are the bytes that the shard table names, already compared with its hash.
  [[nodiscard]] static BlockTable parse(ByteSpan message, const ShardTable& shards, size_t shard, size_t columns);
};

}  // namespace fastshard::pipeline
