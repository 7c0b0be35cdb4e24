#include "pipeline/store_take.h"

#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "pipeline/gather.h"
#include "pipeline/located_rows.h"

namespace fastshard::pipeline {
namespace {

// Finds the blocks of ids; consecutive ids are often of the same shard.
class Locator {
 public:
  explicit Locator(ShardSet& set) : set_(set) {}

  // The shard stays pinned by the locator.
  BlockPlace locate(int64_t id, uint32_t& shard) {
    const ShardPlace place = set_.table().locate(id);
    if (last_ == nullptr || last_->number() != place.shard) {
      std::shared_ptr<Shard>& known = shards_[place.shard];
      if (!known) known = set_.shard(place.shard);
      last_ = known.get();
    }
    shard = place.shard;
    return last_->locate(place.row);
  }

 private:
  ShardSet& set_;
  std::unordered_map<uint32_t, std::shared_ptr<Shard>> shards_;
  const Shard* last_ = nullptr;
};

using Blocks = std::vector<std::shared_ptr<const LoadedBlock>>;

// Where the first value of each block lies; false where some block's column is not plain.
bool plain_values(const Blocks& blocks, size_t column, std::span<const std::byte*> first_values) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i]->plain[column] == nullptr) return false;
    first_values[i] = blocks[i]->plain[column];
  }
  return true;
}

}  // namespace

std::vector<Column> take(ShardSet& set, BlockStore& store, std::span<const int64_t> ids, BufferPool& into) {
  const LocatedRows located = locate_rows(set, ids);
  Blocks blocks;
  blocks.reserve(located.blocks.size());
  for (const LocatedRows::Block& block : located.blocks)
    blocks.push_back(store.get(block.shard->number(), block.block));
  std::vector<Column> out;
  const auto sources = std::make_unique_for_overwrite<const std::byte*[]>(ids.size());
  std::vector<const std::byte*> first_values(blocks.size());
  for (size_t column = 0; column < store.columns().size(); ++column) {
    const ipc::Field& field = set.schema().fields[store.columns()[column]];
    Column& result = out.emplace_back();
    const int64_t width = plain_width(field);
    GatherStatus status = GatherStatus::kOk;
    if (width > 0 && plain_values(blocks, column, first_values)) {
      row_sources(located, first_values, width, sources.get());
      std::byte* const values = make_plain_column(field, static_cast<int64_t>(ids.size()), into, result);
      status = gather_plain({sources.get(), ids.size()}, width, values);
    } else {
      std::vector<Run> runs;
      runs.reserve(ids.size());
      for (const LocatedRow& row : located.rows) add_row(runs, &blocks[row.block]->columns[column].view, row.row);
      status = gather(field, runs, into, result);
    }
    if (status == GatherStatus::kOk) continue;
    for (const auto& block : blocks)
      ipc::check_values(block->columns[column].view);  // throws at the value that is wrong
    throw Error(ErrorKind::kCorrupt, "offsets", "column '" + field.name + "' holds a broken value");
  }
  return out;
}

void request_blocks(ShardSet& set, BlockStore& store, std::span<const int64_t> ids) {
  Locator locator(set);
  uint64_t last_key = UINT64_MAX;
  for (const int64_t id : ids) {
    uint32_t shard = 0;
    const BlockPlace place = locator.locate(id, shard);
    const uint64_t key = (uint64_t{shard} << 32) | place.block;
    if (key == last_key) continue;
    last_key = key;
    store.request(shard, place.block);
  }
}

}  // namespace fastshard::pipeline
