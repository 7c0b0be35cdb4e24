// Batches from bytes that an engine reads, as ShardSet::take makes them from mappings: whole blocks, which are kept for
// the batches to come, or where a batch takes few rows of many blocks these rows alone.
//
// Asked for ahead by one thread, batch after batch; taken by any threads, each batch once. Nothing that is asked for
// ahead, or not, changes what a batch holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/block_store.h"
#include "pipeline/column.h"
#include "pipeline/read_queue.h"
#include "pipeline/row_reads.h"

namespace fastshard::pipeline {

struct ReadSourceOptions {
  ReadQueueOptions queue;
  BlockStoreOptions blocks;
  // How many batches a block serves, about, that is read whole, before it is read again; 0: so many that rows are never
  // read by themselves. Below 1 (for tests) they are where a whole block would be sooner.
  double visits = 0;
};

struct ReadStats {
  ReadQueueStats queue;
  BlockStoreStats blocks;
  int64_t rows_read = 0;  // by themselves, not with a block
};

class ReadSource {
 public:
  ReadSource(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns, std::unique_ptr<io::ReadEngine> engine,
             const ReadSourceOptions& options);
  ~ReadSource();
  ReadSource(const ReadSource&) = delete;
  ReadSource& operator=(const ReadSource&) = delete;

  // Asks for what batch `number` will take. Waits while enough is asked for; returns at once if stopped.
  void request(uint64_t number, std::span<const int64_t> ids);
  // The wanted columns of the samples `ids`, each below set.rows(), in memory of `into`. Throws Error that names shard,
  // block and offset.
  [[nodiscard]] std::vector<Column> take(uint64_t number, std::span<const int64_t> ids, BufferPool& into);
  // Waiting calls throw or return; no thread is left.
  void stop() noexcept;
  // See ReadQueue::give_up.
  void give_up(std::chrono::milliseconds patience) noexcept { queue_.give_up(patience); }

  [[nodiscard]] ReadStats stats() const;
  // See ReadQueue::oldest.
  [[nodiscard]] std::string oldest_read() const { return queue_.oldest(); }

 private:
  const std::shared_ptr<ShardSet> set_;
  ReadQueue queue_;
  BlockStore blocks_;
  std::unique_ptr<RowReads> rows_;  // null where rows are never read by themselves
};

}  // namespace fastshard::pipeline
