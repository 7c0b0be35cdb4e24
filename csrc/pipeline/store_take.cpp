#include "pipeline/store_take.h"

#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "pipeline/gather.h"

namespace fastshard::pipeline {
namespace {

struct Located {
  uint32_t block;  // place among the blocks of this call
  int64_t row;
};

// Finds the shards of ids; consecutive ids are often of the same one.
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

// Where each row's value lies; false where some block's column is not plain.
bool plain_sources(std::span<const Located> rows, std::span<const std::shared_ptr<const LoadedBlock>> blocks,
                   size_t column, int64_t width, const std::byte** sources) {
  for (const Located& row : rows) {
    const std::byte* const values = blocks[row.block]->plain[column];
    if (values == nullptr) return false;
    *sources++ = values + row.row * width;
  }
  return true;
}

}  // namespace

std::vector<Column> take(ShardSet& set, BlockStore& store, std::span<const int64_t> ids, BufferPool& into) {
  Locator locator(set);
  std::vector<Located> rows(ids.size());
  std::vector<std::shared_ptr<const LoadedBlock>> blocks;
  std::unordered_map<uint64_t, uint32_t> known;
  uint64_t last_key = UINT64_MAX;
  uint32_t last = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    uint32_t shard = 0;
    const BlockPlace place = locator.locate(ids[i], shard);
    const uint64_t key = (uint64_t{shard} << 32) | place.block;
    if (key != last_key) {
      const auto [found, is_new] = known.try_emplace(key, static_cast<uint32_t>(blocks.size()));
      if (is_new) blocks.push_back(store.get(shard, place.block));
      last_key = key;
      last = found->second;
    }
    rows[i] = {last, place.row};
  }
  std::vector<Column> out;
  const auto sources = std::make_unique_for_overwrite<const std::byte*[]>(ids.size());
  for (size_t column = 0; column < store.columns().size(); ++column) {
    const ipc::Field& field = set.schema().fields[store.columns()[column]];
    Column& result = out.emplace_back();
    const int64_t width = plain_width(field);
    GatherStatus status = GatherStatus::kOk;
    if (width > 0 && plain_sources(rows, blocks, column, width, sources.get())) {
      std::byte* const values = make_plain_column(field, static_cast<int64_t>(ids.size()), into, result);
      status = gather_plain({sources.get(), ids.size()}, width, values);
    } else {
      std::vector<Run> runs;
      for (const Located& row : rows) add_row(runs, &blocks[row.block]->columns[column].view, row.row);
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
