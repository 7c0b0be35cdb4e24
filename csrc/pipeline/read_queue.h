// Reads by an engine, one I/O thread: jobs are begun in turn, as many of their reads in flight as the engine takes.
//
// A job is what is wanted together: a block, or the rows of a batch. It says what to read of which file, is asked again
// when all of that has come, and ends when it wants nothing more or when a read fails. The I/O thread alone calls it.
//
// Reads come short and are asked for again; a file that refuses O_DIRECT is read without. A read that outlives
// `read_timeout` fails its job, whose memory stays until the read comes back, or for ever.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "io/direct_file.h"
#include "io/read_engine.h"
#include "pipeline/block_bytes.h"
#include "pipeline/shard.h"

namespace fastshard::pipeline {

class ReadQueue;

class ReadJob {
 public:
  // One read. The job owns `bytes`, and keeps shard and file.
  struct Part {
    BlockBytes* bytes = nullptr;
    size_t part = 0;  // of bytes->parts()
    const Shard* shard = nullptr;
    uint32_t block = 0;  // that a message names
    std::shared_ptr<io::DirectFile> file;
  };

  virtual ~ReadJob() = default;
  // Appends what is to be read next; called again when all of it has come. Nothing: the job is finished, and not called
  // again. Throws: as if a read had failed.
  virtual void advance(ReadQueue& queue, std::vector<Part>& parts) = 0;
  // A read failed: nothing more is read for the job, and it is not called again.
  virtual void fail(std::exception_ptr error) noexcept = 0;

 private:
  friend class ReadQueue;
  size_t missing_ = 0;  // parts that have not come
  bool failed_ = false;
};

struct ReadQueueOptions {
  uint32_t depth = 16;                       // reads in flight
  bool direct = true;                        // past the page cache
  std::chrono::nanoseconds read_timeout{0};  // of one read; 0: none
};

struct ReadQueueStats {
  int64_t reads = 0;             // that came
  int64_t bytes_read = 0;        // by them, whole blocks of the device where the page cache is passed
  int64_t buffered_files = 0;    // opened without O_DIRECT, or changed to it
  int64_t registered_reads = 0;  // into memory that the kernel had been told of
};

class ReadQueue {
 public:
  // `root` is the directory of the shards.
  ReadQueue(std::string root, std::unique_ptr<io::ReadEngine> engine, ReadQueueOptions options);
  ~ReadQueue();
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  // The job will be begun: behind those that wait, or before them. After `stop` it is dropped.
  void add(std::shared_ptr<ReadJob> job, bool urgent);
  // Ends the I/O thread when what is in flight has come, but for what is overdue; jobs hear nothing of it.
  void stop() noexcept;
  // `stop` will wait no longer than that for what is in flight: the rest is overdue then.
  void give_up(std::chrono::milliseconds patience) noexcept { patience_ = patience; }

  // For jobs, while they advance: the file of a shard, opened if need be. Throws Error(kNotFound | kIo).
  [[nodiscard]] std::shared_ptr<io::DirectFile> file_of(const Shard& shard);

  [[nodiscard]] ReadQueueStats stats() const;
  // The read that is in flight longest, for a message: shard, block and bytes. Empty where there is none, or no
  // `read_timeout`.
  [[nodiscard]] std::string oldest() const;

 private:
  static constexpr std::chrono::milliseconds kEndless{-1};

  struct Read {
    std::shared_ptr<ReadJob> job;
    ReadJob::Part part;
    uint32_t attempts = 0;
    std::chrono::steady_clock::time_point begun{};
  };

  void run();
  void begin_reads();
  void advance(const std::shared_ptr<ReadJob>& job);
  void handle(const io::ReadCompletion& completion);
  void ask(Read read);
  static void fail(ReadJob& job, std::exception_ptr error) noexcept;
  void expire();
  // When the oldest read is overdue; notes which that is.
  [[nodiscard]] io::Deadline next_deadline();
  void drain(std::vector<io::ReadCompletion>& completions);

  const std::string root_;
  const ReadQueueOptions options_;

  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<ReadJob>> waiting_;
  struct Oldest {
    std::shared_ptr<ReadJob> job;  // keeps the shard
    const Shard* shard = nullptr;
    uint32_t block = 0;
    int64_t first = 0;
    int64_t end = 0;
  } oldest_;
  bool stopped_ = false;
  std::unique_ptr<io::ReadEngine> engine_;  // until `stop`; the I/O thread uses it without the mutex
  int64_t registered_reads_ = 0;            // of the engine that was
  std::atomic<std::chrono::milliseconds> patience_{kEndless};

  std::atomic<int64_t> reads_{0};
  std::atomic<int64_t> bytes_read_{0};
  std::atomic<int64_t> buffered_files_{0};

  // Of the I/O thread alone:
  std::unordered_map<uint64_t, Read> in_flight_;                    // by tag
  std::unordered_map<uint64_t, std::shared_ptr<ReadJob>> overdue_;  // failed by their deadline, memory still in use
  std::deque<Read> next_;                                           // of jobs that were begun, to be read first
  std::vector<io::ReadRequest> requests_;                           // in flight, but not yet with the engine
  std::vector<ReadJob::Part> parts_;                                // scratch
  uint64_t next_tag_ = 0;
  std::unordered_map<uint32_t, std::shared_ptr<io::DirectFile>> files_;
  std::thread thread_;
};

}  // namespace fastshard::pipeline
