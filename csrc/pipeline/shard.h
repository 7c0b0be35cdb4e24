// One open shard: its mapping, its block entries, and the columns of blocks that were asked for so far.
//
// Mapped bytes can change or vanish while we hold them. So: metadata and compressed extents are copied (under a fault
// guard) before they are checked and parsed; uncompressed columns are hashed under a guard and then only addressed.
// Whoever reads values through a view does so under a guard of its own and checks value offsets where it uses them.
//
// Thread-safe. Views of uncompressed columns live as long as the shard; compressed ones as long as their reference.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "ipc/array_view.h"
#include "pipeline/checked.h"
#include "pipeline/decoded_cache.h"
#include "pipeline/guarded_file.h"
#include "pipeline/tables.h"

namespace fastshard::pipeline {

struct BlockPlace {
  uint32_t block = 0;
  int64_t row = 0;  // in the block
};

struct ReadCounters {
  std::atomic<int64_t> shards_opened{0};
  std::atomic<int64_t> blocks_parsed{0};
  std::atomic<int64_t> columns_checked{0};
  std::atomic<int64_t> bytes_checked{0};
  std::atomic<int64_t> columns_decompressed{0};
};

class Shard {
 public:
  struct Context {
    const ipc::Schema* schema;  // outlives the shard
    ReadCounters* counters;     // likewise
    CheckedColumns* checked;    // likewise
    Verify verify;              // of what is taken through the mapping
  };

  // Throws Error(kNotFound | kIo | kCorrupt) that names the shard's file.
  Shard(const Context& context, const std::string& root, const ShardTable& table, size_t shard, BlockTable blocks);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  [[nodiscard]] uint32_t number() const noexcept { return number_; }
  [[nodiscard]] const std::string& name() const noexcept { return file_.name(); }
  [[nodiscard]] size_t blocks() const noexcept { return table_.blocks.size(); }
  [[nodiscard]] const BlockEntry& entry(size_t block) const noexcept { return table_.blocks[block]; }

  // What is needed to locate rows where all blocks but the last have as many: a value, for loops.
  class Locator {
   public:
    Locator() = default;
    explicit Locator(int64_t block_rows) : block_rows_(block_rows) {
      if (block_rows > 1) reciprocal_ = ~uint64_t{0} / static_cast<uint64_t>(block_rows) + 1;
    }
    [[nodiscard]] bool regular() const noexcept { return block_rows_ != 0; }
    // Where regular().
    [[nodiscard]] BlockPlace locate(int64_t row) const noexcept {
      // Exact: both are below 2^32, and reciprocal_ is ceil(2^64 / block_rows_).
      const auto block =
          block_rows_ == 1
              ? static_cast<uint64_t>(row)
              : static_cast<uint64_t>((static_cast<unsigned __int128>(static_cast<uint64_t>(row)) * reciprocal_) >> 64);
      return {static_cast<uint32_t>(block), row - static_cast<int64_t>(block) * block_rows_};
    }

   private:
    int64_t block_rows_ = 0;
    uint64_t reciprocal_ = 0;
  };

  // What messages call a block: "NAME: block B at offset O", and the same with ": " as they begin.
  [[nodiscard]] std::string place(size_t block) const;
  [[nodiscard]] std::string where(size_t block) const;

  // 0 <= row < the shard's rows.
  [[nodiscard]] BlockPlace locate(int64_t row) const noexcept {
    return locator_.regular() ? locator_.locate(row) : locate_irregular(row);
  }
  [[nodiscard]] Locator locator() const noexcept { return locator_; }

  // Whether all bytes of a block are in memory, so that a read through the mapping does not wait.
  [[nodiscard]] bool is_resident(size_t block) const noexcept;

  // Whether the page is in memory where row `row` of a block lies, about.
  [[nodiscard]] bool is_resident_about(size_t block, int64_t row) const noexcept;

  // Advice on what will be read through the mapping; see io::MappedFile. Rows of varying width are left out, and of
  // compressed blocks the columns are taken whole. The last two read the block's metadata, and throw as `column` does.
  void expect(io::Pattern pattern) noexcept;
  void advise_metadata(size_t block);
  void advise_columns(size_t block, std::span<const uint32_t> columns);
  void advise_row(size_t block, int64_t row, std::span<const uint32_t> columns);

  // The column of a block, checked as Context::verify says; with kAlways, whoever gathers from a mapping calls
  // `check_mapped` first. Throws.
  [[nodiscard]] ColumnRef column(size_t block, size_t column, DecodedCache& cache);

  // Compares a column extent with its hash, in place.
  void check(size_t block, size_t column);
  // The same of what lies uncompressed in the mapping alone: the rest is compared when it is decompressed.
  void check_mapped(size_t block, size_t column);

  // For bytes of the shard that came another way than through the mapping: what the index says of them holds, or an
  // error.
  [[nodiscard]] ipc::BatchLayout parse_metadata(size_t block, ByteSpan metadata) const;
  void compare_column(Verify verify, size_t block, size_t column, ByteSpan extent);
  // Whether `compare_column` would compare.
  [[nodiscard]] bool wants_check(Verify verify, size_t block, size_t column) const;

  // First value of a column that lies in the mapping as rows of constant width without nulls; kNotPlain where it does
  // not, null where that is not known yet (call `column`).
  [[nodiscard]] const std::byte* plain_values(size_t block, size_t column) const noexcept {
    const auto* const values = plain_[column].load(std::memory_order_acquire);
    return values == nullptr ? nullptr : values[block].load(std::memory_order_acquire);
  }
  static const std::byte* const kNotPlain;

  // Throws Error(kIo, "vanished") for a fault guard that ended early while bytes of this block were read.
  [[noreturn]] void throw_vanished(size_t block) const;
  // The same, where the column's bytes cannot be read now.
  void check_readable(size_t block, size_t column);
  // Checks all value offsets, views and text of one column of one block; for the message after a failed gather.
  void check_values(size_t block, size_t column, DecodedCache& cache);

 private:
  struct OpenBlock {
    OpenBlock(ipc::BatchLayout parsed, size_t columns) : layout(std::move(parsed)), loaded(columns) {}
    ipc::BatchLayout layout;
    std::vector<std::unique_ptr<const ipc::LoadedColumn>> loaded;  // of uncompressed blocks
  };

  [[nodiscard]] BlockPlace locate_irregular(int64_t row) const noexcept;
  [[nodiscard]] OpenBlock& open_block(size_t block);  // under the mutex
  [[nodiscard]] const OpenBlock& opened(size_t block);
  // The bytes of a column, copied.
  [[nodiscard]] ipc::Storage copy_column(const OpenBlock& open, size_t block, size_t column) const;
  [[nodiscard]] ipc::LoadedColumn load_compressed(const OpenBlock& open, size_t block, size_t column);
  void check_in_place(const OpenBlock& open, size_t block, size_t column);
  void compare(size_t block, size_t column, uint64_t found) const;
  void remember_plain(size_t block, size_t column, const std::byte* first_value);
  [[nodiscard]] uint64_t body_offset(size_t block) const noexcept;
  [[nodiscard]] ByteSpan body(size_t block) const noexcept;
  [[nodiscard]] std::string place_in_file(size_t block) const;
  // While `error` is being handled: throws it with the block's place.
  [[noreturn]] void rethrow(const Error& error, size_t block) const;

  Context context_;
  uint32_t number_;
  BlockTable table_;
  Locator locator_;
  GuardedFile file_;
  std::atomic<io::Pattern> pattern_{io::Pattern::kNormal};
  std::mutex mutex_;
  std::vector<std::unique_ptr<OpenBlock>> open_;  // written under the mutex
  std::vector<std::atomic<std::atomic<const std::byte*>*>> plain_;
};

// First value of a view whose rows have a constant width and no nulls and lie one after the other; null where they do
// not.
[[nodiscard]] const std::byte* plain_values_of(const ipc::ArrayView& view);

// Width in bytes of one row where values of `field` have a constant width and lie one after the other; 0 where not.
[[nodiscard]] int64_t plain_width(const ipc::Field& field);

}  // namespace fastshard::pipeline
