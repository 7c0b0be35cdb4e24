// Finished batches in plan order, made ahead by threads.
//
// Worker threads claim batches by number, gather each alone, and leave it in a ring of `prefetch` slots; `next` takes
// them out by number, and with mappings makes the one it wants itself where no thread has begun it. A batch may be
// claimed only while it is less than `prefetch` ahead of the one being waited for, which bounds memory; the one being
// waited for can always be claimed, so no setting deadlocks. Threads decide when a batch is made, never what is in it.
//
// A stream ends in one of three ways:
//   finished   every batch was delivered; `next` says kEnd, again and again.
//   failed     a batch could not be made: the batches before it are delivered, then `next` throws its error, again and
//              again; later batches are not delivered.
//   abandoned  `stop` (or the destructor) ends the threads after the batch that each is at; `next` says kEnd.
// In each case `stop` returns when no thread is left, but for those that storage does not answer: after `give_up` it
// leaves them behind when its patience ends, and they end when their read does. A consumer that waits in `next` when
// another thread stops the stream gets kEnd.
//
// In the child of a fork there are no threads: `next` throws, and the destructor leaves what the parent owns alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/batch_plan.h"
#include "pipeline/pad.h"
#include "pipeline/read_source.h"
#include "pipeline/shard_set.h"
#include "pipeline/shared_batch.h"

namespace fastshard::pipeline {

using Deadline = std::chrono::steady_clock::time_point;

enum class NextStatus { kBatch, kEnd, kTimedOut };

struct FinishedBatch {
  PlannedBatch planned;
  std::vector<Column> columns;
  std::shared_ptr<SharedBatch> shared;              // where their memory lies, if it is for another process
  std::vector<std::shared_ptr<const void>> owners;  // of values that were left where they are
};

struct StreamStats {
  int64_t batches = 0;  // delivered
  int64_t samples = 0;  // delivered
  int64_t ready = 0;    // finished and not yet delivered
  int64_t wait_ns = 0;  // the consumer spent waiting, or making a batch itself
  // Of all that make batches, the consumer among them:
  int64_t plan_ns = 0;     // computing ids
  int64_t read_ns = 0;     // waiting for storage
  int64_t decode_ns = 0;   // checking and decompressing
  int64_t gather_ns = 0;   // what else making batches took
  int64_t idle_ns = 0;     // nothing to do, the consumer being slower
  int64_t advised = 0;     // batches about which the system was told, as they were not in memory
  int64_t elapsed_ns = 0;  // from the first `next` to the last
};

class BatchStream {
 public:
  struct Options {
    uint32_t threads = 1;
    uint32_t prefetch = 4;    // batches, at least 1
    bool keep_going = false;  // after a batch that failed: `next` throws once for it and goes on with the one behind it
    bool patient = true;      // `next` may make a batch itself, and then takes as long as reading does
    uint32_t advise =
        0;  // batches ahead of the threads about which the system is told, where shards are mapped; 0: none
    bool scattered = false;              // batches take few samples of many blocks, for this advice
    std::shared_ptr<SharedPool> shared;  // memory of batches; null: private to the process
    size_t batch_bytes = 0;              // about, for `shared`
  };

  // What is read of each sample.
  struct Reading {
    std::vector<uint32_t> columns;
    std::vector<Padding> paddings;  // one for each column
    std::vector<bool> left{};       // likewise, or empty: whose values may be left where they are, see Column::left
  };

  // With a source, batches come through it (its columns are those of `reading`), asked for ahead by a thread of their
  // own; without, from mappings.
  BatchStream(std::shared_ptr<ShardSet> set, BatchPlan plan, Reading reading, Options options,
              std::unique_ptr<ReadSource> source = nullptr);
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  // Waits for the next batch until `deadline`. One consumer at a time.
  [[nodiscard]] NextStatus next(FinishedBatch& out, Deadline deadline);
  // The next batch if it is finished: false where `next` would wait, make it, throw or say kEnd. Never waits for more
  // than the lock.
  [[nodiscard]] bool take_ready(FinishedBatch& out);
  void stop() noexcept;
  // What the batch that is waited for reads, for a message: shard, block and bytes.
  [[nodiscard]] std::string awaited() const;
  // Storage does not answer, or may not: `stop` will not wait longer for it than that.
  void give_up(std::chrono::milliseconds patience) noexcept;
  [[nodiscard]] StreamStats stats() const;
  [[nodiscard]] ReadStats read_stats() const;  // zeros without a source

 private:
  struct State;

  [[nodiscard]] bool forked() const noexcept { return generation_ != ShardSet::generation(); }

  const uint64_t generation_;
  // The threads own it, too. In the child of a fork it is left alone, since destroying what threads wait on would wait
  // for them.
  std::shared_ptr<State> state_;
};

}  // namespace fastshard::pipeline
