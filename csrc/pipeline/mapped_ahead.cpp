#include "pipeline/mapped_ahead.h"

#include <algorithm>
#include <utility>

#include "pipeline/located_rows.h"

namespace fastshard::pipeline {

MappedAhead::MappedAhead(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns, bool scattered)
    : set_(std::move(set)), columns_(std::move(columns)), scattered_(scattered) {}

bool MappedAhead::is_missing(std::span<const int64_t> ids) {
  return std::any_of(ids.begin(), ids.end(), [&](int64_t id) {
    const ShardPlace place = set_->table().locate(id);
    const std::shared_ptr<Shard> shard = set_->shard(place.shard);
    const BlockPlace row = shard->locate(place.row);
    return !shard->is_resident_about(row.block, row.row);
  });
}

void MappedAhead::advise(std::span<const int64_t> ids) {
  const LocatedRows located = locate_rows(*set_, ids);
  std::vector<bool> by_rows(located.blocks.size());
  for (size_t i = 0; i < by_rows.size(); ++i) {
    const LocatedRows::Block& block = located.blocks[i];
    block.shard->expect(scattered_ ? io::Pattern::kScattered : io::Pattern::kNormal);
    by_rows[i] = scattered_ && !needs_whole(*block.shard, block.block);
    if (by_rows[i]) block.shard->advise_metadata(block.block);
  }
  for (size_t i = 0; i < by_rows.size(); ++i) {
    if (by_rows[i]) continue;
    const LocatedRows::Block& block = located.blocks[i];
    std::vector<bool>& advised = advised_[block.shard->number()];
    advised.resize(block.shard->blocks());
    if (!advised[block.block]) block.shard->advise_columns(block.block, columns_);
    advised[block.block] = true;
  }
  for (const LocatedRow& row : located.rows) {
    const LocatedRows::Block& block = located.blocks[row.block];
    if (by_rows[row.block]) block.shard->advise_row(block.block, row.row, columns_);
  }
}

// A block whose columns are about to be compared with their hashes is read as a whole.
bool MappedAhead::needs_whole(Shard& shard, uint32_t block) const {
  return std::any_of(columns_.begin(), columns_.end(),
                     [&](uint32_t column) { return shard.wants_check(set_->verify_mode(), block, column); });
}

}  // namespace fastshard::pipeline
