// What the order knows of the shards: docs/order.md, sections 4 and 5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fastshard::order {

// Three columns of the shard table, borrowed from the caller for the length of a call.
struct ShardTable {
  std::span<const int64_t> rows;
  std::span<const int64_t> blocks;      // empty where only the rows are needed
  std::span<const int64_t> block_rows;  // R of each shard, 0 where its blocks are irregular; empty like `blocks`

  [[nodiscard]] size_t size() const noexcept { return rows.size(); }
};

inline constexpr uint64_t kMaxUnits = uint64_t{1} << 22;
inline constexpr uint64_t kMaxDefaultLanes = 64;
inline constexpr uint64_t kUnitsPerLane = 8;  // at least, by default: the price of a lane border is one unit read twice

// Throws kInvalid, naming the shard, unless the rows are non-negative and add up to `size`.
void check_rows(const ShardTable& shards, uint64_t size);

// Rows of a unit of each shard, U[s], at most the shard's rows. Throws kInvalid, naming the shard, if the columns do
// not fit each other or there are too many units.
[[nodiscard]] std::vector<uint64_t> unit_rows(const ShardTable& shards, uint64_t unit_blocks);

// Units before cutting at lanes, given unit_rows().
[[nodiscard]] uint64_t count_units(const ShardTable& shards, std::span<const uint64_t> unit_rows) noexcept;

// The lanes of kind `block` where none are asked for.
[[nodiscard]] uint64_t default_lanes(uint64_t units) noexcept;

// Pieces of shards in the order in which they are dealt to lanes: one more permutation, by seed alone. Immutable.
class Deal {
 public:
  static constexpr uint64_t kPiecesPerLane = 8;  // at least: fewer shards are cut

  struct Piece {
    uint64_t first_id;
    uint64_t rows;       // whole units, but for the shard's last
    uint64_t unit_rows;  // of the shard
  };

  // `unit_rows` as unit_rows() gives them, or empty where a unit is one row.
  Deal(const ShardTable& shards, std::span<const uint64_t> unit_rows, uint64_t lanes, uint64_t seed);

  // Those that hold samples.
  [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }

  // The sample at a dealt row, which is below the number of samples.
  [[nodiscard]] uint64_t id(uint64_t dealt_row) const noexcept;

 private:
  std::vector<Piece> pieces_;
  std::vector<uint64_t> ends_;  // dealt rows up to and with each piece
};

}  // namespace fastshard::order
