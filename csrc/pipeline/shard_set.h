// All shards of one data set, opened as they are needed, at most `max_open` at a time.
//
// Thread-safe. After a fork the child begins with nothing open: what the parent held (and the state of its locks) is
// left alone. Rows are asked for by id; a call pins the shards it reads, so that no eviction can take them away under
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "pipeline/buffer.h"
#include "pipeline/column.h"
#include "pipeline/decoded_cache.h"
#include "pipeline/shard.h"
#include "pipeline/tables.h"
#include "pipeline/verify.h"

namespace fastshard::pipeline {

struct ShardSetOptions {
  std::string root;         // directory of the data set
  std::string shard_table;  // file names in it
  std::string block_table;
  Hash128 shard_table_hash{};
  int64_t block_table_bytes = 0;
  int64_t rows = 0;
  int64_t shards = 0;
  std::vector<std::byte> schema_message;   // encapsulated
  Verify verify = Verify::kOnce;           // of what is taken through mappings
  size_t cache_bytes = size_t{256} << 20;  // of decompressed columns
  size_t max_open = 1024;                  // shards
};

struct Stats {
  int64_t shards_opened = 0;
  int64_t shards_open = 0;
  int64_t blocks_parsed = 0;
  int64_t columns_checked = 0;
  int64_t bytes_checked = 0;
  int64_t columns_decompressed = 0;
  int64_t cache_bytes = 0;
  int64_t fresh_buffers = 0;
};

// Values that a `take` leaves where they are.
struct Left {
  std::vector<bool> columns;                        // of which columns, one for each that is taken
  std::vector<std::shared_ptr<const void>> owners;  // of the mappings that they are in
};

class ShardSet {
 public:
  // Opens the index alone; throws as ShardTable::parse does.
  explicit ShardSet(ShardSetOptions options);
  ~ShardSet();
  ShardSet(const ShardSet&) = delete;
  ShardSet& operator=(const ShardSet&) = delete;

  [[nodiscard]] const ipc::Schema& schema() const noexcept { return schema_; }
  [[nodiscard]] const ShardTable& table() const noexcept { return table_; }
  [[nodiscard]] const std::string& root() const noexcept { return options_.root; }
  [[nodiscard]] int64_t rows() const noexcept { return table_.total_rows(); }

  // Columns `columns` of the samples `ids` (each 0 <= id < rows(), any order, repeats allowed).
  // Throws Error: kOutOfRange names the first id that is not there; others name shard and block.
  [[nodiscard]] std::vector<Column> take(std::span<const int64_t> ids, std::span<const uint32_t> columns) {
    return take(ids, columns, pool());
  }
  // The same, into memory of another pool; values of some columns are left where they are, if that is asked for and
  // possible (see Column::left).
  [[nodiscard]] std::vector<Column> take(std::span<const int64_t> ids, std::span<const uint32_t> columns,
                                         BufferPool& into, Left* left = nullptr);

  [[nodiscard]] std::shared_ptr<Shard> shard(size_t number);
  // The shard if it is open and nobody is opening another just now; never waits.
  [[nodiscard]] std::shared_ptr<Shard> open_shard(size_t number);
  [[nodiscard]] DecodedCache& cache();
  [[nodiscard]] BufferPool& pool();
  [[nodiscard]] Verify verify_mode() const noexcept { return options_.verify; }

  // Changes in the child of a fork: what was opened before must be asked for again.
  [[nodiscard]] static uint64_t generation() noexcept;

  // Every fault of one shard: size, hash, outline against the index, each block, each value.
  [[nodiscard]] ShardReport verify(size_t shard);

  // Compares the hashes of all blocks of a shard's columns, decompressing nothing. Throws at the first that differs.
  void check(size_t shard, std::span<const uint32_t> columns);

  [[nodiscard]] Stats stats();
  // Drops what is open. Later calls open again.
  void close();

 private:
  struct State;

  [[nodiscard]] State& state();
  [[nodiscard]] BlockTable block_table(State& state, size_t shard) const;
  void take_part(std::span<const int64_t> ids, std::span<const uint32_t> columns, BufferPool& into,
                 std::vector<Column>& out, Left* left = nullptr);
  // How many of the first ids can be read together within max_open shards and the cache's budget; at least one.
  [[nodiscard]] size_t part_length(std::span<const int64_t> ids, std::span<const uint32_t> columns) const;

  ShardSetOptions options_;
  ipc::Schema schema_;
  ShardTable table_;
  bool small_;  // all shards together fit max_open, all decompressed data the cache: no take needs parts
  ReadCounters counters_;
  std::atomic<State*> state_{nullptr};
};

}  // namespace fastshard::pipeline
