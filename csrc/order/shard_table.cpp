#include "order/shard_table.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "order/permutation.h"

namespace fastshard::order {
namespace {

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorKind::kInvalid, message); }

std::string at_shard(size_t shard) { return "shard " + std::to_string(shard) + ": "; }

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The smaller of `a * b` and `limit`.
constexpr uint64_t multiply_up_to(uint64_t a, uint64_t b, uint64_t limit) {
  return a > limit / b ? limit : std::min(a * b, limit);
}

}  // namespace

void check_rows(const ShardTable& shards, uint64_t size) {
  if (shards.size() > UINT32_MAX) invalid("an order has at most 2^32 - 1 shards, got " + std::to_string(shards.size()));
  uint64_t total = 0;
  for (size_t s = 0; s < shards.size(); ++s) {
    if (shards.rows[s] < 0) invalid(at_shard(s) + "rows must not be negative, got " + std::to_string(shards.rows[s]));
    const auto rows = static_cast<uint64_t>(shards.rows[s]);
    if (rows > Permutation::kMaxSize - total) invalid("the shards have more than 2^62 samples");
    total += rows;
  }
  if (total != size) {
    invalid("the shards have " + std::to_string(total) + " samples, but the order is of " + std::to_string(size));
  }
}

std::vector<uint64_t> unit_rows(const ShardTable& shards, uint64_t unit_blocks) {
  if (unit_blocks == 0) invalid("unit_blocks must be at least 1, got 0");
  if (shards.blocks.size() != shards.size() || shards.block_rows.size() != shards.size()) {
    invalid("the columns of the shard table differ in length: " + std::to_string(shards.rows.size()) + " rows, " +
            std::to_string(shards.blocks.size()) + " blocks, " + std::to_string(shards.block_rows.size()) +
            " block_rows");
  }
  std::vector<uint64_t> result(shards.size());
  for (size_t s = 0; s < shards.size(); ++s) {
    if (shards.rows[s] == 0) continue;
    const auto rows = static_cast<uint64_t>(shards.rows[s]);
    if (shards.blocks[s] < 1 || shards.block_rows[s] < 0) {
      invalid(at_shard(s) + std::to_string(rows) + " rows need at least 1 block and block_rows of 0 or more, got " +
              std::to_string(shards.blocks[s]) + " and " + std::to_string(shards.block_rows[s]));
    }
    const uint64_t of_block = shards.block_rows[s] > 0 ? static_cast<uint64_t>(shards.block_rows[s])
                                                       : ceil_div(rows, static_cast<uint64_t>(shards.blocks[s]));
    result[s] = multiply_up_to(unit_blocks, of_block, rows);
  }
  const uint64_t units = count_units(shards, result);
  if (units > kMaxUnits) {
    invalid("the shards have " + std::to_string(units) + " units of " + std::to_string(unit_blocks) +
            " blocks, at most 2^22 are allowed; take a larger unit_blocks");
  }
  return result;
}

uint64_t count_units(const ShardTable& shards, std::span<const uint64_t> unit_rows) noexcept {
  uint64_t units = 0;
  for (size_t s = 0; s < shards.size(); ++s) {
    if (shards.rows[s] > 0) units += ceil_div(static_cast<uint64_t>(shards.rows[s]), unit_rows[s]);
  }
  return units;
}

uint64_t default_lanes(uint64_t units) noexcept {
  uint64_t lanes = 1;
  while (2 * lanes <= kMaxDefaultLanes && 2 * lanes * kUnitsPerLane <= units) lanes *= 2;
  return lanes;
}

Deal::Deal(const ShardTable& shards, std::span<const uint64_t> unit_rows, uint64_t lanes, uint64_t seed) {
  if (shards.size() == 0) return;
  std::vector<uint64_t> first_ids(shards.size());
  uint64_t total = 0;
  for (size_t s = 0; s < shards.size(); ++s) {
    first_ids[s] = total;
    total += static_cast<uint64_t>(shards.rows[s]);
  }
  const uint64_t cuts = ceil_div(kPiecesPerLane * lanes, shards.size());
  const Permutation deal(shards.size() * cuts, hash_words(Purpose::kDeal, {seed}));
  pieces_.reserve(deal.size());
  ends_.reserve(deal.size());
  uint64_t end = 0;
  for (uint64_t i = 0; i < deal.size(); ++i) {
    const uint64_t number = deal(i);
    const uint64_t s = number / cuts;
    const auto rows = static_cast<uint64_t>(shards.rows[s]);
    if (rows == 0) continue;
    const uint64_t unit = unit_rows.empty() ? 1 : unit_rows[s];
    const auto row_of_cut = [&](uint64_t cut) {
      const auto units = static_cast<unsigned __int128>(ceil_div(rows, unit));
      return std::min(static_cast<uint64_t>(cut * units / cuts) * unit, rows);
    };
    const uint64_t first = row_of_cut(number % cuts);
    const uint64_t last = row_of_cut(number % cuts + 1);
    if (first == last) continue;
    end += last - first;
    pieces_.push_back({first_ids[s] + first, last - first, unit});
    ends_.push_back(end);
  }
}

uint64_t Deal::id(uint64_t dealt_row) const noexcept {
  const auto piece = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), dealt_row) - ends_.begin());
  return pieces_[piece].first_id + pieces_[piece].rows - (ends_[piece] - dealt_row);
}

}  // namespace fastshard::order
