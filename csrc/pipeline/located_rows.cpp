#include "pipeline/located_rows.h"

#include <unordered_map>

#include "pipeline/shard_set.h"

namespace fastshard::pipeline {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kSmallTable = 4096;

// Numbers for keys below `size`: by table, or where that would be large for a few keys by hash.
class Numbers {
 public:
  Numbers(size_t size, size_t keys) : table_(size <= kSmallTable || size <= 8 * keys ? size : 0, kNone) {}

  // The number of a key, kNone if it is new; to be set.
  [[nodiscard]] uint32_t& of(uint32_t key) {
    return table_.empty() ? hashed_.try_emplace(key, kNone).first->second : table_[key];
  }

 private:
  std::vector<uint32_t> table_;
  std::unordered_map<uint32_t, uint32_t> hashed_;
};

struct Pinned {
  Shard* shard;
  Numbers blocks;
};

void add(LocatedRows& located, Pinned& pinned, int64_t row) {
  const BlockPlace place = pinned.shard->locate(row);
  uint32_t& number = pinned.blocks.of(place.block);
  if (number == kNone) {
    number = static_cast<uint32_t>(located.blocks.size());
    located.blocks.push_back({pinned.shard, place.block});
  }
  located.rows.push_back({number, place.row});
}

}  // namespace

LocatedRows locate_rows(ShardSet& set, std::span<const int64_t> ids) {
  LocatedRows located;
  located.rows.reserve(ids.size());
  const ShardTable& table = set.table();
  Numbers shards(table.size(), ids.size());
  std::vector<Pinned> pinned;
  for (const int64_t id : ids) {
    const ShardPlace place = table.size() == 1 ? ShardPlace{0, id} : table.locate(id);
    uint32_t& number = shards.of(place.shard);
    if (number == kNone) {
      located.shards.push_back(set.shard(place.shard));
      number = static_cast<uint32_t>(pinned.size());
      pinned.push_back({located.shards.back().get(), Numbers(located.shards.back()->blocks(), ids.size())});
    }
    add(located, pinned[number], place.row);
  }
  return located;
}

}  // namespace fastshard::pipeline
