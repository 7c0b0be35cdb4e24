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
  // By key, or empty.
  [[nodiscard]] std::span<const uint32_t> table() const noexcept { return table_; }

 private:
  std::vector<uint32_t> table_;
  std::unordered_map<uint32_t, uint32_t> hashed_;
};

uint32_t number_of(LocatedRows& located, Shard* shard, Numbers& blocks, uint32_t block) {
  uint32_t& number = blocks.of(block);
  if (number == kNone) {
    number = static_cast<uint32_t>(located.blocks.size());
    located.blocks.push_back({shard, block});
  }
  return number;
}

// The loop over the rows of one shard has what it needs in registers: a nanosecond a row.
void locate_in_one(LocatedRows& located, std::span<const int64_t> ids, LocatedRow* out) {
  Shard* const shard = located.shards.front().get();
  Numbers numbers(shard->blocks(), ids.size());
  const Shard::Locator locator = shard->locator();
  const std::span<const uint32_t> table = numbers.table();
  if (!locator.regular() || table.empty()) {
    for (const int64_t id : ids) {
      const BlockPlace place = shard->locate(id);
      *out++ = {number_of(located, shard, numbers, place.block), place.row};
    }
    return;
  }
  for (const int64_t id : ids) {
    const BlockPlace place = locator.locate(id);
    uint32_t number = table[place.block];
    if (number == kNone) [[unlikely]]
      number = number_of(located, shard, numbers, place.block);
    *out++ = {number, place.row};
  }
}

}  // namespace

LocatedRows locate_rows(ShardSet& set, std::span<const int64_t> ids) {
  LocatedRows located;
  located.memory = std::make_unique_for_overwrite<LocatedRow[]>(ids.size());
  located.rows = {located.memory.get(), ids.size()};
  LocatedRow* out = located.memory.get();
  const ShardTable& table = set.table();
  if (ids.empty()) return located;
  if (table.size() == 1) {
    located.shards.push_back(set.shard(0));
    locate_in_one(located, ids, out);
    return located;
  }
  Numbers shards(table.size(), ids.size());
  std::vector<Numbers> blocks;  // of each pinned shard
  for (const int64_t id : ids) {
    const ShardPlace place = table.locate(id);
    uint32_t& number = shards.of(place.shard);
    if (number == kNone) {
      located.shards.push_back(set.shard(place.shard));
      number = static_cast<uint32_t>(blocks.size());
      blocks.emplace_back(located.shards.back()->blocks(), ids.size());
    }
    Shard* const shard = located.shards[number].get();
    const BlockPlace block = shard->locate(place.row);
    *out++ = {number_of(located, shard, blocks[number], block.block), block.row};
  }
  return located;
}

}  // namespace fastshard::pipeline
