#include "pipeline/read_queue.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fastshard::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxFiles = 128;

}  // namespace

ReadQueue::ReadQueue(std::string root, std::unique_ptr<io::ReadEngine> engine, ReadQueueOptions options)
    : root_(std::move(root)), options_(options), engine_(std::move(engine)) {
  thread_ = std::thread([this] { run(); });
}

ReadQueue::~ReadQueue() {
  stop();
  if (!overdue_.empty()) {
    // Reads that never came back still write into memory of theirs: engine and jobs are left to the process.
    (void)engine_.release();
    new std::unordered_map<uint64_t, std::shared_ptr<ReadJob>>(std::move(overdue_));
  }
}

void ReadQueue::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (engine_) engine_->wake();
  }
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  if (!engine_ || !overdue_.empty()) return;
  registered_reads_ = engine_->registered_reads();
  engine_.reset();
}

void ReadQueue::add(std::shared_ptr<ReadJob> job, bool urgent) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (urgent) {
      waiting_.push_front(std::move(job));
    } else {
      waiting_.push_back(std::move(job));
    }
    engine_->wake();
  }
}

std::shared_ptr<io::DirectFile> ReadQueue::file_of(const Shard& shard) {
  const auto found = files_.find(shard.number());
  if (found != files_.end()) return found->second;
  if (files_.size() >= kMaxFiles) {
    for (auto at = files_.begin(); at != files_.end();)
      at = at->second.use_count() == 1 ? files_.erase(at) : std::next(at);
  }
  auto file = std::make_shared<io::DirectFile>(root_ + "/" + shard.name(), shard.name(), options_.direct);
  if (!file->direct()) ++buffered_files_;
  files_.emplace(shard.number(), file);
  return file;
}

void ReadQueue::fail(ReadJob& job, std::exception_ptr error) noexcept {
  if (std::exchange(job.failed_, true)) return;
  job.fail(std::move(error));
}

void ReadQueue::advance(const std::shared_ptr<ReadJob>& job) {
  parts_.clear();
  try {
    job->advance(*this, parts_);
  } catch (...) {
    return fail(*job, std::current_exception());
  }
  job->missing_ = parts_.size();
  for (ReadJob::Part& part : parts_) next_.push_back({job, std::move(part), 0, {}});
}

// Hands a read, or the rest of one, to the engine.
void ReadQueue::ask(Read read) {
  ++read.attempts;
  int64_t offset = 0;
  const std::span<std::byte> out = read.part.bytes->rest(read.part.part, offset);
  const uint64_t tag = next_tag_++;
  requests_.push_back({tag, read.part.file->fd(), static_cast<uint64_t>(offset), out});
  in_flight_.emplace(tag, std::move(read));
}

void ReadQueue::begin_reads() {
  Clock::time_point now{};
  while (in_flight_.size() < options_.depth) {  // those in requests_ are among them
    if (!next_.empty()) {
      Read read = std::move(next_.front());
      next_.pop_front();
      if (read.job->failed_) continue;
      if (now == Clock::time_point{}) now = Clock::now();
      read.begun = now;
      ask(std::move(read));
      continue;
    }
    std::shared_ptr<ReadJob> job;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    advance(job);
  }
}

void ReadQueue::handle(const io::ReadCompletion& completion) {
  if (overdue_.erase(completion.tag) != 0) return;
  const auto found = in_flight_.find(completion.tag);
  if (found == in_flight_.end()) return;
  Read read = std::move(found->second);
  in_flight_.erase(found);
  const std::shared_ptr<ReadJob> job = read.job;
  if (job->failed_) return;
  const BlockBytes::Part& part = read.part.bytes->parts()[read.part.part];
  const auto failed = [&](const std::string& what) {
    fail(*job, std::make_exception_ptr(Error(ErrorKind::kIo, "read", read.part.shard->where(read.part.block) + what)));
  };
  if (completion.result < 0) {
    if (completion.result == -EINVAL && read.part.file->make_buffered()) {
      ++buffered_files_;
      return ask(std::move(read));
    }
    // Another read of the file may have turned O_DIRECT off while this one was refused.
    if (completion.result == -EINVAL && read.attempts == 1 && options_.direct) return ask(std::move(read));
    return failed("reading " + std::to_string(part.wanted) + " bytes at " + std::to_string(part.first) +
                  " failed: " + std::strerror(-completion.result));
  }
  bytes_read_ += completion.result;
  const bool more = read.part.bytes->add(read.part.part, completion.result);
  if (part.got < part.wanted) {
    // No byte more than before is the end of the file: the page that it ends in would come again for ever.
    if (more) return ask(std::move(read));
    return failed("the file ends " + std::to_string(part.wanted - part.got) +
                  " bytes before the block does: it was cut short; restore the file");
  }
  ++reads_;
  if (--job->missing_ == 0) advance(job);
}

io::Deadline ReadQueue::next_deadline() {
  if (options_.read_timeout.count() == 0) return io::Deadline::max();
  const Read* oldest = nullptr;
  for (const auto& [tag, read] : in_flight_) {
    if (oldest == nullptr || read.begun < oldest->begun) oldest = &read;
  }
  Oldest noted;
  if (oldest != nullptr) {
    const BlockBytes::Part& part = oldest->part.bytes->parts()[oldest->part.part];
    noted = {oldest->job, oldest->part.shard, oldest->part.block, part.first, part.first + part.wanted};
  }
  {
    const std::lock_guard lock(mutex_);
    std::swap(oldest_, noted);  // the job noted before may end here, not under the mutex
  }
  return oldest == nullptr ? io::Deadline::max() : oldest->begun + options_.read_timeout;
}

std::string ReadQueue::oldest() const {
  const std::lock_guard lock(mutex_);
  if (!oldest_.job) return {};
  return oldest_.shard->place(oldest_.block) + ", bytes " + std::to_string(oldest_.first) + " to " +
         std::to_string(oldest_.end);
}

void ReadQueue::expire() {
  if (options_.read_timeout.count() == 0) return;
  const auto now = Clock::now();
  for (auto at = in_flight_.begin(); at != in_flight_.end();) {
    if (now - at->second.begun < options_.read_timeout) {
      ++at;
      continue;
    }
    const Read read = std::move(at->second);
    overdue_.emplace(at->first, read.job);
    at = in_flight_.erase(at);
    const double seconds = std::chrono::duration<double>(options_.read_timeout).count();
    const BlockBytes::Part& part = read.part.bytes->parts()[read.part.part];
    fail(*read.job,
         std::make_exception_ptr(Error(
             ErrorKind::kTimeout, "read_timeout",
             read.part.shard->where(read.part.block) + "reading bytes " + std::to_string(part.first) + " to " +
                 std::to_string(part.first + part.wanted) + " took longer than " + std::to_string(seconds) +
                 " s (attempt " + std::to_string(read.attempts) + "); raise read_timeout= or look at the storage")));
  }
}

void ReadQueue::run() {
  pthread_setname_np(pthread_self(), "fs-read");
  std::vector<io::ReadCompletion> completions(options_.depth);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) break;
    }
    begin_reads();
    const size_t taken = engine_->submit(requests_);
    requests_.erase(requests_.begin(), requests_.begin() + static_cast<ptrdiff_t>(taken));
    // Reads in flight end the wait; so does `wake` for new jobs, or the end.
    const size_t count = engine_->wait(completions, 1, next_deadline());
    for (size_t i = 0; i < count; ++i) handle(completions[i]);
    expire();
  }
  drain(completions);
}

// What is in flight writes into memory of jobs: wait for it, but not for what is overdue.
void ReadQueue::drain(std::vector<io::ReadCompletion>& completions) {
  for (const io::ReadRequest& request : requests_) in_flight_.erase(request.tag);  // the engine never got them
  const Clock::time_point begun = Clock::now();
  while (!in_flight_.empty()) {
    const Clock::time_point now = Clock::now();
    if (const auto patience = patience_.load(); patience != kEndless && now - begun >= patience) {
      for (auto& [tag, read] : in_flight_) overdue_.emplace(tag, std::move(read.job));
      in_flight_.clear();
      return;
    }
    const size_t count = engine_->wait(completions, 1, now + std::chrono::milliseconds(100));
    for (size_t i = 0; i < count; ++i) {
      in_flight_.erase(completions[i].tag);
      overdue_.erase(completions[i].tag);
    }
    expire();
  }
}

ReadQueueStats ReadQueue::stats() const {
  const std::lock_guard lock(mutex_);
  return {reads_, bytes_read_, buffered_files_, engine_ ? engine_->registered_reads() : registered_reads_};
}

}  // namespace fastshard::pipeline
