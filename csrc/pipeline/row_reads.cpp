#include "pipeline/row_reads.h"
#include "pipeline/stage_times.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "ipc/row_range.h"

namespace fastshard::pipeline {
namespace {

constexpr size_t kLayoutBytes = size_t{32} << 20;  // of layouts that are kept
constexpr size_t kRetainedBytes = size_t{32} << 20;

size_t size_of(const RowLayout& layout) {
  return sizeof(RowLayout) + layout.batch.nodes.size() * sizeof(ipc::Node) +
         layout.batch.buffers.size() * sizeof(ipc::BufferExtent) + layout.batch.first_node.size() * 12 +
         layout.columns.size() * sizeof(RowLayout::Column);
}

int64_t round_up(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) & -alignment; }

}  // namespace

RowReads::RowReads(std::shared_ptr<ShardSet> set, BlockStore& store, ReadQueue& queue, double visits)
    : set_(std::move(set)),
      store_(store),
      queue_(queue),
      planner_(set_, store, visits),
      memory_(BufferPool::make(kRetainedBytes)) {}

RowReads::~RowReads() = default;

void RowReads::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void RowReads::request(uint64_t number, std::span<const int64_t> ids) {
  if (!store_.wait_for_room()) return;
  {
    const std::lock_guard lock(mutex_);
    if (number < frontier_) return;
  }
  auto batch = std::make_shared<Batch>(*this, planner_.plan(ids));
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || number < frontier_) return;
    batch->counted_ = batch->plan_.bytes;
    batches_.emplace(number, batch);
    store_.count_ahead(batch->counted_);
  }
  queue_.add(batch, false);
  const RowPlan& plan = batch->plan_;
  for (size_t i = 0; i < plan.blocks.size(); ++i) {
    const LocatedRows::Block& block = plan.located.blocks[i];
    if (!plan.blocks[i].by_rows) store_.request(block.shard->number(), block.block);
  }
}

std::shared_ptr<const RowReads::Batch> RowReads::take(uint64_t number, std::span<const int64_t> ids) {
  Ref batch;
  {
    const std::lock_guard lock(mutex_);
    frontier_ = std::max(frontier_, number + 1);
    if (const auto found = batches_.find(number); found != batches_.end()) {
      batch = found->second;
      batches_.erase(found);
    }
  }
  if (!batch) {
    batch = std::make_shared<Batch>(*this, planner_.plan(ids));
    queue_.add(batch, true);
  }
  std::unique_lock lock(mutex_);
  {
    const StageClock clock(stage_times().read_ns);
    changed_.wait(lock, [&] { return stopped_ || batch->ready_ || batch->error_; });
  }
  store_.count_ahead(-std::exchange(batch->counted_, 0));
  if (batch->error_) std::rethrow_exception(batch->error_);
  if (!batch->ready_) throw Error(ErrorKind::kIo, "stopped", "the loader was stopped");
  return batch;
}

void RowReads::finish(Batch& batch, std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    batch.ready_ = !error;
    batch.error_ = std::move(error);
  }
  changed_.notify_all();
}

RowReads::Key RowReads::key_of(const BlockEntry& entry) noexcept {
  return {entry.metadata_hash, entry.extent.metadata_bytes, entry.extent.body_bytes, entry.rows};
}

RowReads::LayoutRef RowReads::layout_of(const BlockEntry& entry) const {
  const auto found = layouts_.find(key_of(entry));
  return found == layouts_.end() ? nullptr : found->second;
}

void RowReads::remember(const BlockEntry& entry, LayoutRef layout) {
  if (layout_bytes_ > kLayoutBytes) {
    layouts_.clear();
    layout_bytes_ = 0;
  }
  layout_bytes_ += size_of(*layout);
  layouts_.emplace(key_of(entry), std::move(layout));
}

RowReads::LayoutRef RowReads::make_layout(ipc::BatchLayout batch) const {
  auto layout = std::make_shared<RowLayout>();
  const ipc::Schema& schema = set_->schema();
  for (const uint32_t column : store_.columns()) {
    RowLayout::Column& found = layout->columns.emplace_back();
    const ipc::Field& field = schema.fields[column];
    found.by_rows = batch.compression == ipc::Compression::kNone && ipc::row_bits(field) >= 0;
    if (!found.by_rows || batch.rows == 0) continue;
    std::vector<ipc::BufferExtent> extents;
    ipc::append_row_extents(batch, schema, column, 0, batch.rows, extents);  // validates
    if (extents.size() == 1 && plain_width(field) > 0) found.plain = extents.front().offset;
  }
  layout->batch = std::move(batch);
  return layout;
}

RowReads::Batch::Batch(RowReads& owner, RowPlan plan)
    : owner_(owner), plan_(std::move(plan)), blocks_(plan_.blocks.size()) {}

const BlockEntry& RowReads::Batch::entry(size_t block) const noexcept {
  const LocatedRows::Block& located = plan_.located.blocks[block];
  return located.shard->entry(located.block);
}

ByteSpan RowReads::Batch::body(size_t block, const ipc::BufferExtent& extent) const noexcept {
  const ipc::BlockExtent& whole = entry(block).extent;
  return blocks_[block].bytes.at(whole.offset + whole.metadata_bytes + extent.offset, extent.length);
}

void RowReads::Batch::advance(ReadQueue& queue, std::vector<Part>& parts) {
  if (stage_ == Stage::kNew) {
    stage_ = Stage::kMetadata;
    begin_metadata(queue, parts);
    if (!parts.empty()) return;
  }
  if (stage_ == Stage::kMetadata) {
    stage_ = Stage::kRows;
    end_metadata();
    begin_rows(queue, parts);
    if (!parts.empty()) return;
  }
  owner_.rows_read_ += rows_read();
  owner_.finish(*this, nullptr);
}

int64_t RowReads::Batch::rows_read() const noexcept {
  const auto alone = [&](const LocatedRow& row) {
    const LayoutRef& layout = blocks_[row.block].layout;
    return layout && layout->batch.compression == ipc::Compression::kNone;
  };
  return std::count_if(plan_.located.rows.begin(), plan_.located.rows.end(), alone);
}

// Asks for the metadata that are not known, of each kind those of one block.
void RowReads::Batch::begin_metadata(ReadQueue& queue, std::vector<Part>& parts) {
  std::unordered_set<Key, HashOfKey> asked;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!plan_.blocks[i].by_rows) continue;
    blocks_[i].layout = owner_.layout_of(entry(i));
    if (blocks_[i].layout || !asked.insert(key_of(entry(i))).second) continue;
    const LocatedRows::Block& located = plan_.located.blocks[i];
    std::shared_ptr<io::DirectFile> file = queue.file_of(*located.shard);
    const ipc::BlockExtent& extent = entry(i).extent;
    auto& metadata = *metadata_.emplace_back(std::make_unique<Metadata>(
        Metadata{i, BlockBytes({{extent.offset, extent.metadata_bytes}}, {.alignment = file->alignment()})}));
    metadata.bytes.allocate();
    parts.push_back({&metadata.bytes, 0, located.shard, located.block, std::move(file)});
  }
}

void RowReads::Batch::end_metadata() {
  std::unordered_map<Key, LayoutRef, HashOfKey> found;  // what is remembered may be forgotten before the end
  for (const std::unique_ptr<Metadata>& read : metadata_) {
    const LocatedRows::Block& located = plan_.located.blocks[read->block];
    const ipc::BlockExtent& extent = entry(read->block).extent;
    ipc::BatchLayout batch =
        located.shard->parse_metadata(located.block, read->bytes.at(extent.offset, extent.metadata_bytes));
    if (batch.compression != ipc::Compression::kNone) owner_.planner_.found_compressed(located.shard->number());
    try {
      const LayoutRef layout = owner_.make_layout(std::move(batch));
      owner_.remember(entry(read->block), layout);
      found.emplace(key_of(entry(read->block)), layout);
    } catch (const Error& error) {
      throw Error(error.kind(), error.code(), located.shard->where(located.block) + error.what());
    }
  }
  metadata_.clear();
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (plan_.blocks[i].by_rows && !blocks_[i].layout) blocks_[i].layout = found.at(key_of(entry(i)));
  }
}

std::vector<FileRange> RowReads::Batch::wanted_ranges(size_t block) const {
  const RowLayout& layout = *blocks_[block].layout;
  const RowPlan::Block& planned = plan_.blocks[block];
  const std::vector<uint32_t>& columns = owner_.store_.columns();
  std::vector<ipc::BufferExtent> extents;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (!layout.columns[c].by_rows) {
      extents.push_back(layout.batch.column_extent(columns[c]));
      continue;
    }
    for (uint32_t i = planned.first_range; i < planned.end_range; ++i) {
      const RowRange& range = plan_.ranges[i];
      ipc::append_row_extents(layout.batch, owner_.set_->schema(), columns[c], range.first, range.count, extents);
    }
  }
  const int64_t body = entry(block).extent.offset + entry(block).extent.metadata_bytes;
  std::vector<FileRange> ranges;
  ranges.reserve(extents.size());
  for (const ipc::BufferExtent& extent : extents) ranges.push_back({body + extent.offset, extent.length});
  return ranges;
}

void RowReads::Batch::begin_rows(ReadQueue& queue, std::vector<Part>& parts) {
  int64_t bytes = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!plan_.blocks[i].by_rows) continue;
    const LocatedRows::Block& located = plan_.located.blocks[i];
    const std::shared_ptr<io::DirectFile> file = queue.file_of(*located.shard);
    BlockBytes& wanted = blocks_[i].bytes =
        BlockBytes(wanted_ranges(i), {.alignment = file->alignment(), .gap = kReadCost});
    bytes = round_up(bytes, file->alignment()) + wanted.memory_bytes();
    for (size_t part = 0; part < wanted.parts().size(); ++part)
      parts.push_back({&wanted, part, located.shard, located.block, file});
  }
  {
    const std::lock_guard lock(owner_.mutex_);
    if (counted_ != 0) owner_.store_.count_ahead(bytes - std::exchange(counted_, bytes));
  }
  if (bytes == 0) return;
  memory_ = owner_.memory_->lease(static_cast<size_t>(bytes + io::kDirectAlignment));
  auto* const base =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<intptr_t>(memory_.data()), io::kDirectAlignment));
  int64_t at = 0;
  for (Block& block : blocks_) {
    if (!block.layout) continue;
    at = round_up(at, block.bytes.alignment());
    block.bytes.place_at(base + at);
    at += block.bytes.memory_bytes();
  }
}

}  // namespace fastshard::pipeline
