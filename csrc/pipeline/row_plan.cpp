#include "pipeline/row_plan.h"

#include <algorithm>
#include <numeric>

#include "ipc/row_range.h"

namespace fastshard::pipeline {
RowPlanner::RowPlanner(std::shared_ptr<ShardSet> set, const BlockStore& store, double visits)
    : set_(std::move(set)), store_(store), visits_(visits) {
  const std::vector<ipc::Field>& fields = set_->schema().fields;
  for (const uint32_t column : store_.columns()) {
    bits_.push_back(ipc::row_bits(fields[column]));
    varies_ = varies_ || bits_.back() < 0;
  }
  projects_ = bits_.size() < fields.size();
  for (const ipc::Field& field : fields) fixed_bits_ += std::clamp<int64_t>(ipc::row_bits(field), 0, INT32_MAX);
}

void RowPlanner::found_compressed(uint32_t shard) {
  const std::lock_guard lock(mutex_);
  compressed_.insert(shard);
}

RowPlan RowPlanner::plan(std::span<const int64_t> ids) const {
  RowPlan plan;
  plan.located = locate_rows(*set_, ids);
  const std::span<const LocatedRow> rows = plan.located.rows;
  std::vector<uint32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return rows[a].block != rows[b].block ? rows[a].block < rows[b].block : rows[a].row < rows[b].row;
  });
  plan.range_of.resize(rows.size());
  plan.blocks.resize(plan.located.blocks.size());
  for (size_t i = 0; i < order.size();) {
    const uint32_t number = rows[order[i]].block;
    RowPlan::Block& block = plan.blocks[number];
    block.first_range = static_cast<uint32_t>(plan.ranges.size());
    const size_t first = i;
    for (; i < order.size() && rows[order[i]].block == number; ++i) {
      const int64_t row = rows[order[i]].row;
      if (i == first || row > plan.ranges.back().first + plan.ranges.back().count) {
        plan.ranges.push_back({row, 1});
      } else {  // the next one, or the same once more
        plan.ranges.back().count = row - plan.ranges.back().first + 1;
      }
      plan.range_of[order[i]] = static_cast<uint32_t>(plan.ranges.size() - 1);
    }
    block.end_range = static_cast<uint32_t>(plan.ranges.size());
    const std::span ranges(plan.ranges.data() + block.first_range, block.end_range - block.first_range);
    block.by_rows = by_rows(plan.located.blocks[number], ranges, plan.bytes);
  }
  return plan;
}

bool RowPlanner::by_rows(const LocatedRows::Block& block, std::span<const RowRange> ranges, int64_t& bytes) const {
  const BlockEntry& entry = block.shard->entry(block.block);
  const auto all = static_cast<double>(entry.extent.metadata_bytes + entry.extent.body_bytes);
  const auto rows = static_cast<double>(entry.rows);
  // What of a block is not of constant width: as much as is left when the rest is taken away.
  const double varying = varies_ ? std::max(0.0, all - rows * static_cast<double>(fixed_bits_) / 8) : 0;
  double wanted = varying;
  double read = varying;
  double reads = varies_ ? 1 : 0;
  for (const int64_t bits : bits_) {
    if (bits < 0) continue;
    const double column = rows * static_cast<double>(bits) / 8;
    wanted += column;
    double part = 0;
    for (const RowRange& range : ranges) part += static_cast<double>(range.count) * static_cast<double>(bits) / 8 + 512;
    const auto count = static_cast<double>(ranges.size());
    const bool as_one = column <= part + (count - 1) * static_cast<double>(kReadCost);  // with all between the ranges
    read += as_one ? column : part;
    reads += as_one ? 1 : count;
  }
  const double cost = read + reads * static_cast<double>(kReadCost);
  const double whole = (projects_ ? std::min(wanted, all) : all) + static_cast<double>(kReadCost);
  if (cost * visits_ >= whole || needs_whole(block)) return false;
  bytes += static_cast<int64_t>(read);
  return true;
}

bool RowPlanner::needs_whole(const LocatedRows::Block& block) const {
  const uint32_t shard = block.shard->number();
  if (set_->table().raw_bytes(shard) > set_->table().bytes(shard)) return true;  // compressed
  {
    const std::lock_guard lock(mutex_);
    if (compressed_.contains(shard)) return true;
  }
  if (store_.has(shard, block.block)) return true;
  return std::any_of(store_.columns().begin(), store_.columns().end(),
                     [&](uint32_t column) { return block.shard->wants_check(store_.verify(), block.block, column); });
}

}  // namespace fastshard::pipeline
