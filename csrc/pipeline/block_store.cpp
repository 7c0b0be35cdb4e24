#include "pipeline/block_store.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace fastshard::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxFiles = 128;

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

  // Of the read, by the I/O thread until it leaves kReading:
  std::shared_ptr<io::DirectFile> file;
  int64_t first = 0;   // file offset of raw
  int64_t wanted = 0;  // bytes of raw that must be there
  int64_t got = 0;
  uint32_t attempts = 0;
  Clock::time_point begun{};
  ipc::Storage raw;

  std::shared_ptr<const LoadedBlock> loaded;
  std::exception_ptr error;

  [[nodiscard]] size_t bytes() const noexcept { return loaded ? loaded->bytes : static_cast<size_t>(wanted); }
  [[nodiscard]] std::string where() const {
    return shard->name() + ": block " + std::to_string(block) + " at offset " +
           std::to_string(shard->entry(block).extent.offset) + ": ";
  }
};

BlockStore::BlockStore(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns,
                       std::unique_ptr<io::ReadEngine> engine, BlockStoreOptions options)
    : set_(std::move(set)), columns_(std::move(columns)), options_(options), engine_(std::move(engine)) {
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
  prepare(*entry);
  const std::lock_guard lock(mutex_);
  const auto [found, inserted] = entries_.try_emplace(key, entry);
  if (!inserted) return found->second;
  is_new = true;
  ahead_ += entry->bytes();
  if (urgent) {
    queue_.push_front(entry);
  } else {
    queue_.push_back(entry);
  }
  return entry;
}

// What to read of the block: all of it, its metadata too.
void BlockStore::prepare(Entry& entry) {
  const ipc::BlockExtent& extent = entry.shard->entry(entry.block).extent;
  const int64_t end = extent.offset + extent.metadata_bytes + extent.body_bytes;
  entry.first = extent.offset / io::kDirectAlignment * io::kDirectAlignment;
  entry.wanted = end - entry.first;
}

std::shared_ptr<const LoadedBlock> BlockStore::get(uint32_t shard, uint32_t block) {
  bool is_new = false;
  const EntryRef entry = find_or_queue(shard, block, true, is_new);
  if (is_new) engine_->wake();
  std::unique_lock lock(mutex_);
  if (!entry->used) {
    entry->used = true;
    ahead_ -= std::min(ahead_, entry->bytes());
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
    if (!entry->used) ahead_ -= std::min(ahead_, entry->bytes());
    entries_.erase(entry->key);
    room_.notify_all();
  }
  if (state == State::kReady) {
    order_.push_front(entry->key);
    entry->place = order_.begin();
    entry->kept = true;
    held_ += entry->bytes();
    evict();
  }
}

// Under the mutex. Blocks that somebody gathers from stay.
void BlockStore::evict() {
  auto at = order_.end();
  while (held_ > options_.budget_bytes && at != order_.begin()) {
    --at;
    const auto found = entries_.find(*at);
    if (found->second->loaded.use_count() > 1) continue;
    held_ -= found->second->bytes();
    found->second->kept = false;  // a `get` may hold the entry still
    entries_.erase(found);
    at = order_.erase(at);
  }
}

std::shared_ptr<const LoadedBlock> BlockStore::decode(Entry& entry) const {
  const ipc::Schema& schema = set_->schema();
  const BlockEntry& block = entry.shard->entry(entry.block);
  auto loaded = std::make_shared<LoadedBlock>();
  const ByteSpan raw = entry.raw.span();
  const auto lead = static_cast<size_t>(block.extent.offset - entry.first);
  const ByteSpan metadata = raw.subspan(lead, static_cast<size_t>(block.extent.metadata_bytes));
  const ByteSpan body = raw.subspan(lead + metadata.size(), static_cast<size_t>(block.extent.body_bytes));
  const ipc::BatchLayout layout = entry.shard->parse_metadata(entry.block, metadata);
  bool keeps_raw = false;
  for (const uint32_t column : columns_) {
    const ipc::BufferExtent extent = layout.column_extent(column);
    const ByteSpan bytes = body.subspan(static_cast<size_t>(extent.offset), static_cast<size_t>(extent.length));
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
    loaded->bytes += entry.raw.size();
    loaded->raw = std::move(entry.raw);  // moving keeps the address
  }
  entry.raw = ipc::Storage();
  return loaded;
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

io::ReadRequest BlockStore::rest_of(const EntryRef& entry, uint64_t tag) const {
  // O_DIRECT goes on at a multiple of its alignment; what is read twice is a page at most.
  const int64_t from = entry->got / io::kDirectAlignment * io::kDirectAlignment;
  return {tag,
          entry->file->fd(),
          static_cast<uint64_t>(entry->first + from),
          {entry->raw.data() + from, entry->raw.size() - static_cast<size_t>(from)}};
}

void BlockStore::begin_reads(std::vector<io::ReadRequest>& requests) {
  while (requests.size() + in_flight_.size() < options_.depth) {
    EntryRef entry;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return;
      entry = queue_.front();
      queue_.pop_front();
    }
    try {
      entry->file = file_of(*entry->shard);
      const int64_t rounded = (entry->wanted + io::kDirectAlignment - 1) / io::kDirectAlignment * io::kDirectAlignment;
      entry->raw = ipc::Storage(static_cast<size_t>(rounded), static_cast<size_t>(io::kDirectAlignment));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      finish(entry, State::kFailed, std::current_exception());
      changed_.notify_all();
      continue;
    }
    entry->begun = Clock::now();
    entry->attempts = 1;
    const uint64_t tag = next_tag_++;
    in_flight_.emplace(tag, entry);
    requests.push_back(rest_of(entry, tag));
  }
}

void BlockStore::handle(const io::ReadCompletion& completion) {
  if (overdue_.erase(completion.tag) != 0) return;
  const auto found = in_flight_.find(completion.tag);
  if (found == in_flight_.end()) return;
  const EntryRef entry = found->second;
  in_flight_.erase(found);
  const auto again = [&] {
    const uint64_t tag = next_tag_++;
    ++entry->attempts;
    in_flight_.emplace(tag, entry);
    const io::ReadRequest request = rest_of(entry, tag);
    return engine_->submit({&request, 1}) == 1;  // there is room: one completion was just taken
  };
  std::string wrong;
  if (completion.result < 0) {
    if (completion.result == -EINVAL && entry->file->make_buffered()) {
      {
        const std::lock_guard lock(mutex_);
        ++stats_.buffered_files;
      }
      if (again()) return;
    }
    wrong =
        std::string("reading ") + std::to_string(entry->wanted) + " bytes failed: " + std::strerror(-completion.result);
  } else {
    const int64_t before = entry->got;
    entry->got = before / io::kDirectAlignment * io::kDirectAlignment + completion.result;
    if (entry->got < entry->wanted) {
      // No byte more than before is the end of the file: the page that it ends in would come again for ever.
      if (entry->got > before && again()) return;
      wrong = "the file ends " + std::to_string(entry->wanted - entry->got) +
              " bytes before the block does: it was cut short; restore the file";
    }
  }
  const std::lock_guard lock(mutex_);
  entry->file.reset();
  if (!wrong.empty()) {
    finish(entry, State::kFailed, std::make_exception_ptr(Error(ErrorKind::kIo, "read", entry->where() + wrong)));
  } else {
    ++stats_.blocks_read;
    std::vector<bool>& seen = seen_[entry->shard->number()];
    seen.resize(entry->shard->blocks());
    if (seen[entry->block]) ++stats_.blocks_read_again;
    seen[entry->block] = true;
    stats_.bytes_read += entry->got;
    finish(entry, State::kRead, nullptr);
  }
  changed_.notify_all();
}

io::Deadline BlockStore::next_deadline() const {
  if (options_.read_timeout.count() == 0) return io::Deadline::max();
  io::Deadline deadline = io::Deadline::max();
  for (const auto& [tag, entry] : in_flight_) deadline = std::min(deadline, entry->begun + options_.read_timeout);
  return deadline;
}

void BlockStore::expire() {
  if (options_.read_timeout.count() == 0) return;
  const auto now = Clock::now();
  for (auto at = in_flight_.begin(); at != in_flight_.end();) {
    const EntryRef entry = at->second;
    if (now - entry->begun < options_.read_timeout) {
      ++at;
      continue;
    }
    overdue_.emplace(at->first, entry);
    at = in_flight_.erase(at);
    const double seconds = std::chrono::duration<double>(options_.read_timeout).count();
    const std::lock_guard lock(mutex_);
    finish(
        entry, State::kFailed,
        std::make_exception_ptr(Error(ErrorKind::kTimeout, "read_timeout",
                                      entry->where() + "reading bytes " + std::to_string(entry->first) + " to " +
                                          std::to_string(entry->first + entry->wanted) + " took longer than " +
                                          std::to_string(seconds) + " s (attempt " + std::to_string(entry->attempts) +
                                          "); raise read_timeout= or look at the storage")));
    changed_.notify_all();
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
    for (size_t i = 0; i < count; ++i) handle(completions[i]);
    expire();
  }
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
