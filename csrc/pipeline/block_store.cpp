#include "pipeline/block_store.h"
#include "pipeline/stage_times.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"

namespace fastshard::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWholeShare = 0.75;  // of a block: where as much of it is wanted, it is read whole

uint64_t key_of(uint32_t shard, uint32_t block) { return (uint64_t{shard} << 32) | block; }

}  // namespace

class BlockStore::Entry final : public ReadJob {
 public:
  Entry(BlockStore& owner, std::shared_ptr<Shard> of, uint32_t number)
      : key(key_of(of->number(), number)), shard(std::move(of)), block(number), store_(owner) {}

  // First the whole block, or where only some columns are wanted its metadata; then what these say of the columns.
  void advance(ReadQueue& queue, std::vector<Part>& parts) override {
    if (!file_) {
      file_ = queue.file_of(*shard);
      const ipc::BlockExtent& extent = shard->entry(block).extent;
      whole_ = store_.reads_whole(*this);
      const int64_t all = extent.metadata_bytes + extent.body_bytes;
      begin({{extent.offset, whole_ ? all : extent.metadata_bytes}}, parts);
    } else if (!whole_ && !layout) {
      parse_layout();
      begin(store_.wanted_ranges(*this), parts);
      store_.begin_columns(*this);
    }
    if (!parts.empty()) return;
    file_.reset();
    store_.complete(*this);
  }

  void fail(std::exception_ptr why) noexcept override { store_.fail(*this, std::move(why)); }

  void parse_layout() {
    layout = shard->parse_metadata(block, bytes.at(offset(), shard->entry(block).extent.metadata_bytes));
  }

  [[nodiscard]] int64_t offset() const noexcept { return shard->entry(block).extent.offset; }
  [[nodiscard]] int64_t body_offset() const noexcept { return offset() + shard->entry(block).extent.metadata_bytes; }

  const uint64_t key;
  const std::shared_ptr<Shard> shard;
  const uint32_t block;

  // Of the read, by the I/O thread until it leaves kReading, then by the thread that decodes:
  BlockBytes bytes;
  std::optional<ipc::BatchLayout> layout;

  // Under the store's mutex:
  State state = State::kReading;
  bool used = false;  // by a `get`
  int64_t taken = 0;  // rows, by `get`s
  bool kept = false;  // in order_
  std::list<uint64_t>::iterator place;
  size_t counted = 0;  // in ahead_, until it is used
  std::shared_ptr<const LoadedBlock> loaded;
  std::exception_ptr error;

 private:
  void begin(std::vector<FileRange> ranges, std::vector<Part>& parts) {
    bytes = BlockBytes(std::move(ranges), {.alignment = file_->alignment()});
    bytes.allocate();
    for (size_t part = 0; part < bytes.parts().size(); ++part)
      parts.push_back({&bytes, part, shard.get(), block, file_});
  }

  BlockStore& store_;
  std::shared_ptr<io::DirectFile> file_;
  bool whole_ = false;
};

BlockStore::BlockStore(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns, ReadQueue& queue,
                       BlockStoreOptions options)
    : set_(std::move(set)),
      columns_(std::move(columns)),
      options_(options),
      projects_(columns_.size() < set_->schema().fields.size()),
      queue_(queue) {}

void BlockStore::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  room_.notify_all();
}

bool BlockStore::wait_for_room() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return stopped_ || ahead_ < options_.ahead_bytes; });
  return !stopped_;
}

void BlockStore::count_ahead(int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    ahead_ += static_cast<size_t>(bytes);  // wraps for less: unsigned sums do
    if (bytes > 0) evict();
  }
  if (bytes < 0) room_.notify_all();
}

bool BlockStore::has(uint32_t shard, uint32_t block) const {
  const std::lock_guard lock(mutex_);
  return entries_.contains(key_of(shard, block));
}

void BlockStore::request(uint32_t shard, uint32_t block) {
  if (wait_for_room() && !has(shard, block)) (void)find_or_add(shard, block, false);
}

BlockStore::EntryRef BlockStore::find_or_add(uint32_t shard, uint32_t block, bool urgent) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key_of(shard, block)); found != entries_.end()) return found->second;
  }
  auto entry = std::make_shared<Entry>(*this, set_->shard(shard), block);
  {
    const ipc::BlockExtent& extent = entry->shard->entry(block).extent;
    const std::lock_guard lock(mutex_);
    const auto share = shares_.find(shard);
    entry->counted = static_cast<size_t>(static_cast<double>(extent.metadata_bytes + extent.body_bytes) *
                                         (share == shares_.end() ? 1.0 : share->second));
    const auto [found, inserted] = entries_.try_emplace(entry->key, entry);
    if (!inserted) return found->second;
    ahead_ += entry->counted;
  }
  queue_.add(entry, urgent);
  return entry;
}

std::shared_ptr<const LoadedBlock> BlockStore::get(uint32_t shard, uint32_t block, int64_t rows) {
  const EntryRef entry = find_or_add(shard, block, true);
  std::unique_lock lock(mutex_);
  entry->taken += rows;
  if (!entry->used) {
    entry->used = true;
    ahead_ -= entry->counted;
    room_.notify_all();
  } else {
    ++stats_.blocks_used_again;
  }
  for (;;) {
    if (entry->state == State::kReading) {
      const StageClock clock(stage_times().read_ns);
      changed_.wait(lock, [&] { return stopped_ || entry->state != State::kReading; });
    }
    if (entry->state == State::kDecoding) {
      const StageClock clock(stage_times().decode_ns);
      changed_.wait(lock, [&] { return stopped_ || entry->state != State::kDecoding; });
    }
    if (entry->state == State::kReady) {
      const bool spent = entry->taken >= entry->shard->entry(block).rows;
      if (entry->kept) order_.splice(spent ? order_.end() : order_.begin(), order_, entry->place);
      return entry->loaded;
    }
    if (entry->state == State::kFailed) std::rethrow_exception(entry->error);
    if (stopped_) throw Error(ErrorKind::kIo, "stopped", "the loader was stopped");
    entry->state = State::kDecoding;
    lock.unlock();
    std::exception_ptr error;
    try {
      const StageClock clock(stage_times().decode_ns);
      entry->loaded = decode(*entry);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    finish(*entry, error ? State::kFailed : State::kReady, error);
    changed_.notify_all();
  }
}

// Under the mutex. A block that failed is forgotten, so that it is read again when it is asked for again.
void BlockStore::finish(Entry& entry, State state, std::exception_ptr error) {
  entry.state = state;
  entry.error = std::move(error);
  if (state == State::kFailed) {
    if (!entry.used) ahead_ -= entry.counted;
    entries_.erase(entry.key);  // somebody holds it still: whoever calls
    room_.notify_all();
  }
  if (state == State::kReady) {
    order_.push_front(entry.key);
    entry.place = order_.begin();
    entry.kept = true;
    held_ += entry.loaded->bytes;
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
  if (!entry.layout) entry.parse_layout();
  const ipc::BatchLayout& layout = *entry.layout;
  bool keeps_raw = false;
  for (const uint32_t column : columns_) {
    const ipc::BufferExtent extent = layout.column_extent(column);
    const ByteSpan bytes = entry.bytes.at(entry.body_offset() + extent.offset, extent.length);
    entry.shard->compare_column(options_.verify, entry.block, column, bytes);
    try {
      loaded->columns.push_back(ipc::load_column(layout, bytes, extent.offset, schema, column));
    } catch (const Error& error) {
      throw Error(error.kind(), error.code(), entry.shard->where(entry.block) + error.what());
    }
    const ipc::LoadedColumn& last = loaded->columns.back();
    loaded->plain.push_back(plain_values_of(last.view));
    keeps_raw = keeps_raw || last.storage.empty();
    for (const ipc::Storage& storage : last.storage) loaded->bytes += storage.size();
  }
  if (keeps_raw) {
    loaded->bytes += entry.bytes.size();
    loaded->raw = entry.bytes.release();
  }
  entry.bytes = BlockBytes();
  entry.layout.reset();
  return loaded;
}

// Whether a block is read whole, or its metadata first.
bool BlockStore::reads_whole(const Entry& entry) {
  const ipc::BlockExtent& extent = entry.shard->entry(entry.block).extent;
  if (!projects_ || extent.metadata_bytes + extent.body_bytes <= 2 * BlockBytes::Rules().gap) return true;
  const std::lock_guard lock(mutex_);
  const auto share = shares_.find(entry.shard->number());
  return share != shares_.end() && share->second > kWholeShare;
}

// The extents of the wanted columns, by the metadata.
std::vector<FileRange> BlockStore::wanted_ranges(const Entry& entry) const {
  std::vector<FileRange> ranges;
  for (const uint32_t column : columns_) {
    const ipc::BufferExtent extent = entry.layout->column_extent(column);
    ranges.push_back({entry.body_offset() + extent.offset, extent.length});
  }
  return ranges;
}

// What a block takes is known now.
void BlockStore::begin_columns(Entry& entry) {
  const int64_t all = std::max<int64_t>(1, entry.layout->body_bytes);
  const std::lock_guard lock(mutex_);
  shares_[entry.shard->number()] = static_cast<double>(entry.bytes.wanted()) / static_cast<double>(all);
  if (!entry.used) {
    ahead_ -= entry.counted;
    ahead_ += static_cast<size_t>(entry.bytes.wanted());
    room_.notify_all();
  }
  entry.counted = static_cast<size_t>(entry.bytes.wanted());
  ++stats_.partial_blocks;
}

// All that was asked for is there.
void BlockStore::complete(Entry& entry) {
  const std::lock_guard lock(mutex_);
  ++stats_.blocks_read;
  std::vector<bool>& seen = seen_[entry.shard->number()];
  seen.resize(entry.shard->blocks());
  if (seen[entry.block]) ++stats_.blocks_read_again;
  seen[entry.block] = true;
  finish(entry, State::kRead, nullptr);
  changed_.notify_all();
}

void BlockStore::fail(Entry& entry, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  finish(entry, State::kFailed, std::move(error));
  changed_.notify_all();
}

BlockStoreStats BlockStore::stats() const {
  const std::lock_guard lock(mutex_);
  BlockStoreStats stats = stats_;
  stats.held_bytes = static_cast<int64_t>(held_);
  return stats;
}

}  // namespace fastshard::pipeline
