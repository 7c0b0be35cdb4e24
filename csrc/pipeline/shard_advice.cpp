// What a shard says to the system of reads to come.
#include "ipc/row_range.h"
#include "pipeline/shard.h"

namespace fastshard::pipeline {

void Shard::expect(io::Pattern pattern) noexcept {
  if (pattern_.exchange(pattern, std::memory_order_relaxed) != pattern) file_.expect(pattern);
}

void Shard::advise_metadata(size_t block) {
  {
    const std::lock_guard lock(mutex_);
    if (open_[block]) return;
  }
  const ipc::BlockExtent& extent = table_.blocks[block].extent;
  file_.will_need(static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.metadata_bytes));
}

void Shard::advise_columns(size_t block, std::span<const uint32_t> columns) {
  const ipc::BlockExtent& all = table_.blocks[block].extent;
  if (columns.size() == context_.schema->fields.size()) {
    file_.will_need(static_cast<uint64_t>(all.offset), static_cast<uint64_t>(all.metadata_bytes + all.body_bytes));
    return;
  }
  const OpenBlock& open = opened(block);
  for (const uint32_t column : columns) {
    const ipc::BufferExtent extent = open.layout.column_extent(column);
    file_.will_need(body_offset(block) + static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.length));
  }
}

void Shard::advise_row(size_t block, int64_t row, std::span<const uint32_t> columns) {
  const ipc::BatchLayout& layout = opened(block).layout;
  std::vector<ipc::BufferExtent> extents;
  for (const uint32_t column : columns) {
    if (layout.compression != ipc::Compression::kNone) {
      extents.push_back(layout.column_extent(column));
    } else if (ipc::row_bits(context_.schema->fields[column]) >= 0) {
      ipc::append_row_extents(layout, *context_.schema, column, row, 1, extents);
    }
  }
  for (const ipc::BufferExtent& extent : extents)
    file_.will_need(body_offset(block) + static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.length));
}

}  // namespace fastshard::pipeline
