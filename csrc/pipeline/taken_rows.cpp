#include "pipeline/taken_rows.h"

#include <utility>

#include "base/error.h"
#include "ipc/row_range.h"

namespace fastshard::pipeline {

TakenRows::TakenRows(ShardSet& set, BlockStore& store, LocatedRows located)
    : set_(set), store_(store), own_(std::move(located)), located_(own_) {
  get_blocks();
}

TakenRows::TakenRows(ShardSet& set, BlockStore& store, std::shared_ptr<const RowReads::Batch> batch)
    : set_(set), store_(store), batch_(std::move(batch)), located_(batch_->plan().located) {
  get_blocks();
}

void TakenRows::get_blocks() {
  blocks_.resize(located_.blocks.size());
  std::vector<int64_t> rows(blocks_.size());
  for (const LocatedRow& row : located_.rows) ++rows[row.block];
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const LocatedRows::Block& block = located_.blocks[i];
    if (!by_rows(i)) blocks_[i] = store_.get(block.shard->number(), block.block, rows[i]);
  }
}

bool TakenRows::plain_sources(size_t column, int64_t width, std::span<const std::byte*> sources) const {
  std::vector<const std::byte*> first_values(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (by_rows(i)) {
      if (batch_->layout(i).columns[column].plain < 0) return false;
    } else {
      first_values[i] = blocks_[i]->plain[column];
      if (first_values[i] == nullptr) return false;
    }
  }
  if (!batch_) {
    row_sources(located_, first_values, width, sources.data());
    return true;
  }
  const RowPlan& plan = batch_->plan();
  std::vector<const std::byte*> of_ranges(plan.ranges.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const RowPlan::Block& block = plan.blocks[i];
    for (uint32_t range = block.first_range; range < block.end_range; ++range) {
      const RowRange& rows = plan.ranges[range];
      const std::byte* const first =
          block.by_rows
              ? batch_->body(i, {batch_->layout(i).columns[column].plain + rows.first * width, rows.count * width})
                    .data()
              : first_values[i] + rows.first * width;
      of_ranges[range] = first;
    }
  }
  for (size_t i = 0; i < located_.rows.size(); ++i) {
    const uint32_t range = plan.range_of[i];
    sources[i] = of_ranges[range] + (located_.rows[i].row - plan.ranges[range].first) * width;
  }
  return true;
}

TakenRows::Views TakenRows::load(size_t block, size_t column) const {
  const RowLayout& layout = batch_->layout(block);
  const uint32_t number = store_.columns()[column];
  Views views;
  views.by_rows = layout.columns[column].by_rows;
  try {
    if (!views.by_rows) {
      const ipc::BufferExtent extent = layout.batch.column_extent(number);
      views.loaded.push_back(
          ipc::load_column(layout.batch, batch_->body(block, extent), extent.offset, set_.schema(), number));
      return views;
    }
    const RowPlan::Block& planned = batch_->plan().blocks[block];
    for (uint32_t i = planned.first_range; i < planned.end_range; ++i) {
      const RowRange& rows = batch_->plan().ranges[i];
      views.loaded.push_back(
          ipc::load_rows(layout.batch, set_.schema(), number, rows.first, rows.count,
                         [&](const ipc::BufferExtent& extent) { return batch_->body(block, extent); }));
    }
  } catch (const Error& error) {
    const LocatedRows::Block& located = located_.blocks[block];
    throw Error(error.kind(), error.code(), located.shard->where(located.block) + error.what());
  }
  return views;
}

std::vector<Run> TakenRows::runs(size_t column) {
  std::vector<Views>& views = views_.emplace_back(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (by_rows(i)) views[i] = load(i, column);
  }
  std::vector<Run> runs;
  runs.reserve(located_.rows.size());
  for (size_t i = 0; i < located_.rows.size(); ++i) {
    const LocatedRow& row = located_.rows[i];
    if (!by_rows(row.block)) {
      add_row(runs, &blocks_[row.block]->columns[column].view, row.row);
    } else if (!views[row.block].by_rows) {
      add_row(runs, &views[row.block].loaded.front().view, row.row);
    } else {
      const uint32_t range = batch_->plan().range_of[i];
      const size_t in_block = range - batch_->plan().blocks[row.block].first_range;
      add_row(runs, &views[row.block].loaded[in_block].view, row.row - batch_->plan().ranges[range].first);
    }
  }
  return runs;
}

void TakenRows::check_values(size_t column) const {
  for (const std::shared_ptr<const LoadedBlock>& block : blocks_) {
    if (block) ipc::check_values(block->columns[column].view);
  }
  for (const std::vector<Views>& of_call : views_) {
    for (const Views& views : of_call) {
      for (const ipc::LoadedColumn& loaded : views.loaded) ipc::check_values(loaded.view);
    }
  }
}

}  // namespace fastshard::pipeline
