#include "pipeline/block_store.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "pipeline/block_bytes.h"

namespace fastshard::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxFiles = 128;
constexpr double kWholeShare = 0.75;  // of a block: where as much of it is wanted, it is read whole

uint64_t key_of(uint32_t shard, uint32_t block) { return (uint64_t{shard} << 32) | block; }

}  // namespace

struct BlockStore::Entry {
  uint64_t key = 0;
  std::shared_ptr<Shard> shard;
  uint32_t block = 0;
  State state = State::kReading;
  bool used = false;  // by a `get`
  bool kept = false;  // in order_
  std::list<uint64_t>::iterator place;

  size_t counted = 0;  // in ahead_, until it is used

  // Of the read, by the I/O thread until it leaves kReading:
  std::shared_ptr<io::DirectFile> file;
  BlockBytes bytes_of;
  std::optional<ipc::BatchLayout> layout;  // where only some columns are read: what the metadata say
  size_t in_flight = 0;
  bool failed = false;

  std::shared_ptr<const LoadedBlock> loaded;
  std::exception_ptr error;

  [[nodiscard]] int64_t offset() const noexcept { return shard->entry(block).extent.offset; }
  [[nodiscard]] int64_t body_offset() const noexcept { return offset() + shard->entry(block).extent.metadata_bytes; }
  [[nodiscard]] std::string where() const {
    return shard->name() + ": block " + std::to_string(block) + " at offset " +
           std::to_string(shard->entry(block).extent.offset) + ": ";
  }
};

BlockStore::BlockStore(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns,
                       std::unique_ptr<io::ReadEngine> engine, BlockStoreOptions options)
    : set_(std::move(set)),
      columns_(std::move(columns)),
      options_(options),
      projects_(columns_.size() < set_->schema().fields.size()),
      engine_(std::move(engine)) {
  thread_ = std::thread([this] { run(); });
}

BlockStore::~BlockStore() {
  stop();
  if (!overdue_.empty()) {
    // Reads that never came back still write into memory of theirs: engine and entries are left to the process.
    (void)engine_.release();
    new std::unordered_map<uint64_t, EntryRef>(std::move(overdue_));
  }
}

void BlockStore::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  room_.notify_all();
  engine_->wake();
  if (thread_.joinable()) thread_.join();
}

void BlockStore::request(uint32_t shard, uint32_t block) {
  bool is_new = false;
  {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return stopped_ || ahead_ < options_.ahead_bytes; });
    if (stopped_) return;
    if (entries_.contains(key_of(shard, block))) return;
  }
  (void)find_or_queue(shard, block, false, is_new);
  if (is_new) engine_->wake();
}

BlockStore::EntryRef BlockStore::find_or_queue(uint32_t shard, uint32_t block, bool urgent, bool& is_new) {
  const uint64_t key = key_of(shard, block);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) return found->second;
  }
  auto entry = std::make_shared<Entry>();
  entry->key = key;
  entry->shard = set_->shard(shard);
  entry->block = block;
  const ipc::BlockExtent& extent = entry->shard->entry(block).extent;
  const std::lock_guard lock(mutex_);
  const auto share = shares_.find(shard);
  entry->counted = static_cast<size_t>(static_cast<double>(extent.metadata_bytes + extent.body_bytes) *
                                       (share == shares_.end() ? 1.0 : share->second));
  const auto [found, inserted] = entries_.try_emplace(key, entry);
  if (!inserted) return found->second;
  is_new = true;
  ahead_ += entry->counted;
  if (urgent) {
    queue_.push_front(entry);
  } else {
    queue_.push_back(entry);
  }
  return entry;
}

std::shared_ptr<const LoadedBlock> BlockStore::get(uint32_t shard, uint32_t block) {
  bool is_new = false;
  const EntryRef entry = find_or_queue(shard, block, true, is_new);
  if (is_new) engine_->wake();
  std::unique_lock lock(mutex_);
  if (!entry->used) {
    entry->used = true;
    ahead_ -= entry->counted;
    room_.notify_all();
  } else {
    ++stats_.blocks_used_again;
  }
  for (;;) {
    changed_.wait(lock,
                  [&] { return stopped_ || (entry->state != State::kReading && entry->state != State::kDecoding); });
    if (entry->state == State::kReady) {
      if (entry->kept) order_.splice(order_.begin(), order_, entry->place);
      return entry->loaded;
    }
    if (entry->state == State::kFailed) std::rethrow_exception(entry->error);
    if (stopped_) throw Error(ErrorKind::kIo, "stopped", "the loader was stopped");
    entry->state = State::kDecoding;
    lock.unlock();
    std::exception_ptr error;
    const auto begin = Clock::now();
    try {
      entry->loaded = decode(*entry);
    } catch (...) {
      error = std::current_exception();
    }
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    lock.lock();
    stats_.decode_ns += took;
    finish(entry, error ? State::kFailed : State::kReady, error);
    changed_.notify_all();
  }
}

// Under the mutex. A block that failed is forgotten, so that it is read again when it is asked for again.
void BlockStore::finish(const EntryRef& entry, State state, std::exception_ptr error) {
  entry->state = state;
  entry->error = std::move(error);
  if (state == State::kFailed) {
    if (!entry->used) ahead_ -= entry->counted;
    entries_.erase(entry->key);
    room_.notify_all();
  }
  if (state == State::kReady) {
    order_.push_front(entry->key);
    entry->place = order_.begin();
    entry->kept = true;
    held_ += entry->loaded->bytes;
    evict();
  }
}

// Under the mutex. Blocks that somebody gathers from stay.
void BlockStore::evict() {
  auto at = order_.end();
  while (held_ + ahead_ > options_.budget_bytes && at != order_.begin()) {
    --at;
    const auto found = entries_.find(*at);
    if (found->second->loaded.use_count() > 1) continue;
    held_ -= found->second->loaded->bytes;
    found->second->kept = false;  // a `get` may hold the entry still
    entries_.erase(found);
    at = order_.erase(at);
  }
}

std::shared_ptr<const LoadedBlock> BlockStore::decode(Entry& entry) const {
  const ipc::Schema& schema = set_->schema();
  auto loaded = std::make_shared<LoadedBlock>();
  if (!entry.layout) entry.layout = parse_layout(entry);
  const ipc::BatchLayout& layout = *entry.layout;
  bool keeps_raw = false;
  for (const uint32_t column : columns_) {
    const ipc::BufferExtent extent = layout.column_extent(column);
    const ByteSpan bytes = entry.bytes_of.at(entry.body_offset() + extent.offset, extent.length);
    entry.shard->compare_column(options_.verify, entry.block, column, bytes);
    try {
      loaded->columns.push_back(ipc::load_column(layout, bytes, extent.offset, schema, column));
    } catch (const Error& error) {
      throw Error(error.kind(), error.code(), entry.where() + error.what());
    }
    const ipc::LoadedColumn& last = loaded->columns.back();
    loaded->plain.push_back(plain_values_of(last.view));
    keeps_raw = keeps_raw || last.storage.empty();
    for (const ipc::Storage& storage : last.storage) loaded->bytes += storage.size();
  }
  if (keeps_raw) {
    loaded->bytes += entry.bytes_of.size();
    loaded->raw = entry.bytes_of.release();
  }
  entry.bytes_of = BlockBytes();
  entry.layout.reset();
  return loaded;
}

ipc::BatchLayout BlockStore::parse_layout(const Entry& entry) const {
  const int64_t length = entry.shard->entry(entry.block).extent.metadata_bytes;
  return entry.shard->parse_metadata(entry.block, entry.bytes_of.at(entry.offset(), length));
}

std::shared_ptr<io::DirectFile> BlockStore::file_of(const Shard& shard) {
  const auto found = files_.find(shard.number());
  if (found != files_.end()) return found->second;
  if (files_.size() >= kMaxFiles) {
    for (auto at = files_.begin(); at != files_.end();)
      at = at->second.use_count() == 1 ? files_.erase(at) : std::next(at);
  }
  auto file = std::make_shared<io::DirectFile>(set_->root() + "/" + shard.name(), shard.name(), options_.direct);
  if (!file->direct()) {
    const std::lock_guard lock(mutex_);
    ++stats_.buffered_files;
  }
  files_.emplace(shard.number(), file);
  return file;
}

io::ReadRequest BlockStore::request_rest(const Read& read) {
  int64_t offset = 0;
  const std::span<std::byte> out = read.entry->bytes_of.rest(read.part, offset);
  const uint64_t tag = next_tag_++;
  in_flight_.emplace(tag, read);
  return {tag, read.entry->file->fd(), static_cast<uint64_t>(offset), out};
}

// The first thing to read of a block: all of it, or where only some columns are wanted its metadata.
BlockBytes BlockStore::first_bytes(const Entry& entry) {
  const ipc::BlockExtent& extent = entry.shard->entry(entry.block).extent;
  const int64_t all = extent.metadata_bytes + extent.body_bytes;
  bool whole = !projects_ || all <= 2 * BlockBytes::kGap;
  if (!whole) {
    const std::lock_guard lock(mutex_);
    const auto share = shares_.find(entry.shard->number());
    whole = share != shares_.end() && share->second > kWholeShare;
  }
  return BlockBytes({{extent.offset, whole ? all : extent.metadata_bytes}});
}

// What is left to read once the metadata are there: the extents of the wanted columns.
BlockBytes BlockStore::column_bytes(const EntryRef& entry) {
  std::vector<FileRange> ranges;
  for (const uint32_t column : columns_) {
    const ipc::BufferExtent extent = entry->layout->column_extent(column);
    ranges.push_back({entry->body_offset() + extent.offset, extent.length});
  }
  BlockBytes bytes(std::move(ranges));
  const int64_t all = std::max<int64_t>(1, entry->layout->body_bytes);
  const std::lock_guard lock(mutex_);
  shares_[entry->shard->number()] = static_cast<double>(bytes.wanted()) / static_cast<double>(all);
  if (!entry->used) {
    ahead_ -= entry->counted;
    ahead_ += static_cast<size_t>(bytes.wanted());
    room_.notify_all();
  }
  entry->counted = static_cast<size_t>(bytes.wanted());
  ++stats_.partial_blocks;
  return bytes;
}

void BlockStore::begin_reads(std::vector<io::ReadRequest>& requests) {
  while (in_flight_.size() < options_.depth) {  // those in `requests` are among them
    if (!parts_.empty()) {
      const Read read{parts_.front().entry, parts_.front().part, 1, Clock::now()};
      parts_.pop_front();
      if (!read.entry->failed) requests.push_back(request_rest(read));
      continue;
    }
    EntryRef entry;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return;
      entry = queue_.front();
      queue_.pop_front();
    }
    try {
      entry->file = file_of(*entry->shard);
      begin_parts(entry, first_bytes(*entry));
    } catch (...) {
      fail(entry, std::current_exception());
    }
  }
}

void BlockStore::begin_parts(const EntryRef& entry, BlockBytes bytes) {
  bytes.allocate();
  entry->bytes_of = std::move(bytes);
  entry->in_flight = entry->bytes_of.parts().size();
  for (size_t part = 0; part < entry->in_flight; ++part) parts_.push_back({entry, part, 0, {}});
}

void BlockStore::fail(const EntryRef& entry, std::exception_ptr error) {
  if (entry->failed) return;
  entry->failed = true;
  const std::lock_guard lock(mutex_);
  finish(entry, State::kFailed, std::move(error));
  changed_.notify_all();
}

void BlockStore::handle(const io::ReadCompletion& completion, std::vector<io::ReadRequest>& requests) {
  if (overdue_.erase(completion.tag) != 0) return;
  const auto found = in_flight_.find(completion.tag);
  if (found == in_flight_.end()) return;
  Read read = found->second;
  const EntryRef& entry = read.entry;
  in_flight_.erase(found);
  if (entry->failed) return;
  BlockBytes::Part& part = entry->bytes_of.parts()[read.part];
  const auto again = [&] {
    ++read.attempts;
    requests.push_back(request_rest(read));
  };
  const auto failed = [&](const std::string& what) {
    fail(entry, std::make_exception_ptr(Error(ErrorKind::kIo, "read", entry->where() + what)));
  };
  if (completion.result < 0) {
    if (completion.result == -EINVAL && entry->file->make_buffered()) {
      {
        const std::lock_guard lock(mutex_);
        ++stats_.buffered_files;
      }
      return again();
    }
    // Another read of the file may have turned O_DIRECT off while this one was refused.
    if (completion.result == -EINVAL && read.attempts == 1 && options_.direct) return again();
    return failed("reading " + std::to_string(part.wanted) + " bytes failed: " + std::strerror(-completion.result));
  }
  const int64_t before = part.got;
  part.got = before / io::kDirectAlignment * io::kDirectAlignment + completion.result;
  if (part.got < part.wanted) {
    // No byte more than before is the end of the file: the page that it ends in would come again for ever.
    if (part.got > before) return again();
    return failed("the file ends " + std::to_string(part.wanted - part.got) +
                  " bytes before the block does: it was cut short; restore the file");
  }
  {
    const std::lock_guard lock(mutex_);
    stats_.bytes_read += part.got;
  }
  if (--entry->in_flight == 0) complete(entry);
}

// All that was asked for is there: the block, or the metadata that say where its columns are.
void BlockStore::complete(const EntryRef& entry) {
  const ipc::BlockExtent& extent = entry->shard->entry(entry->block).extent;
  const int64_t read_to = entry->bytes_of.parts().empty()
                              ? 0
                              : entry->bytes_of.parts().back().first + entry->bytes_of.parts().back().wanted;
  if (!entry->layout && read_to < extent.offset + extent.metadata_bytes + extent.body_bytes) {
    try {
      entry->layout = parse_layout(*entry);
      begin_parts(entry, column_bytes(entry));
    } catch (...) {
      return fail(entry, std::current_exception());
    }
    if (entry->in_flight > 0) return;
  }
  const std::lock_guard lock(mutex_);
  entry->file.reset();
  ++stats_.blocks_read;
  std::vector<bool>& seen = seen_[entry->shard->number()];
  seen.resize(entry->shard->blocks());
  if (seen[entry->block]) ++stats_.blocks_read_again;
  seen[entry->block] = true;
  finish(entry, State::kRead, nullptr);
  changed_.notify_all();
}

io::Deadline BlockStore::next_deadline() const {
  if (options_.read_timeout.count() == 0) return io::Deadline::max();
  io::Deadline deadline = io::Deadline::max();
  for (const auto& [tag, read] : in_flight_) deadline = std::min(deadline, read.begun + options_.read_timeout);
  return deadline;
}

void BlockStore::expire() {
  if (options_.read_timeout.count() == 0) return;
  const auto now = Clock::now();
  for (auto at = in_flight_.begin(); at != in_flight_.end();) {
    const Read read = at->second;
    if (now - read.begun < options_.read_timeout) {
      ++at;
      continue;
    }
    overdue_.emplace(at->first, read.entry);
    at = in_flight_.erase(at);
    const double seconds = std::chrono::duration<double>(options_.read_timeout).count();
    const BlockBytes::Part& part = read.entry->bytes_of.parts()[read.part];
    fail(read.entry,
         std::make_exception_ptr(Error(ErrorKind::kTimeout, "read_timeout",
                                       read.entry->where() + "reading bytes " + std::to_string(part.first) + " to " +
                                           std::to_string(part.first + part.wanted) + " took longer than " +
                                           std::to_string(seconds) + " s (attempt " + std::to_string(read.attempts) +
                                           "); raise read_timeout= or look at the storage")));
  }
}

void BlockStore::run() {
  pthread_setname_np(pthread_self(), "fs-read");
  std::vector<io::ReadRequest> requests;
  std::vector<io::ReadCompletion> completions(options_.depth);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) break;
    }
    begin_reads(requests);
    const size_t taken = engine_->submit(requests);
    requests.erase(requests.begin(), requests.begin() + static_cast<ptrdiff_t>(taken));
    // Reads in flight end the wait; so does `wake` for new requests, or the end.
    const size_t count = engine_->wait(completions, 1, next_deadline());
    for (size_t i = 0; i < count; ++i) handle(completions[i], requests);
    expire();
  }
  for (const io::ReadRequest& request : requests) in_flight_.erase(request.tag);  // the engine never got them
  // What is in flight writes into entries: wait for it, but not for what is overdue.
  while (!in_flight_.empty()) {
    const size_t count = engine_->wait(completions, 1, Clock::now() + std::chrono::milliseconds(100));
    for (size_t i = 0; i < count; ++i) {
      in_flight_.erase(completions[i].tag);
      overdue_.erase(completions[i].tag);
    }
    expire();
  }
}

BlockStoreStats BlockStore::stats() const {
  const std::lock_guard lock(mutex_);
  BlockStoreStats stats = stats_;
  stats.held_bytes = static_cast<int64_t>(held_);
  return stats;
}

}  // namespace fastshard::pipeline
