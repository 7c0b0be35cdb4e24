#include "pipeline/shard.h"
#include "pipeline/stage_times.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace fastshard::pipeline {
namespace {

constexpr std::byte kNotPlainMark{};

std::string hex(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof(text), "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

bool is_plain(const ipc::ArrayView& view) {
  if (view.validity != nullptr) return false;
  if (view.field->layout == ipc::Layout::kFixed) return true;
  return view.field->layout == ipc::Layout::kFixedList && is_plain(view.children[0]);
}

const std::byte* innermost_values(const ipc::ArrayView& view) {
  return view.field->layout == ipc::Layout::kFixed ? view.values : innermost_values(view.children[0]);
}

}  // namespace

const std::byte* const Shard::kNotPlain = &kNotPlainMark;

const std::byte* plain_values_of(const ipc::ArrayView& view) {
  return is_plain(view) ? innermost_values(view) : nullptr;
}

int64_t plain_width(const ipc::Field& field) {
  if (field.layout == ipc::Layout::kFixed) return field.byte_width;
  if (field.layout != ipc::Layout::kFixedList) return 0;
  int64_t width = 0;
  if (!checked_multiply(field.list_size, plain_width(field.children[0]), width)) return 0;
  return width;
}

Shard::Shard(const Context& context, const std::string& root, const ShardTable& table, size_t shard, BlockTable blocks)
    : context_(context),
      number_(static_cast<uint32_t>(shard)),
      table_(std::move(blocks)),
      open_(table_.blocks.size()),
      plain_(context.schema->fields.size()) {
  // The reciprocal is exact below 2^32 only.
  const bool small = table.block_rows(shard) <= INT32_MAX && table.rows(shard) <= INT32_MAX;
  if (small) locator_ = Locator(table.block_rows(shard));
  const std::string path(table.path(shard));
  file_ = GuardedFile(root + "/" + path, path);
  const auto found = static_cast<int64_t>(file_.size());
  if (found != table.bytes(shard)) {
    throw Error(ErrorKind::kCorrupt, "shard_size",
                name() + ": the file has " + std::to_string(found) + " bytes, the index says " +
                    std::to_string(table.bytes(shard)) +
                    ": it was cut short or replaced; restore the file, or convert the source again");
  }
  context_.counters->shards_opened.fetch_add(1, std::memory_order_relaxed);
}

Shard::~Shard() {
  for (auto& column : plain_) delete[] column.load(std::memory_order_relaxed);
}

BlockPlace Shard::locate_irregular(int64_t row) const noexcept {
  const auto after = std::upper_bound(table_.blocks.begin(), table_.blocks.end(), row,
                                      [](int64_t value, const BlockEntry& entry) { return value < entry.first_row; });
  const auto block =
      static_cast<size_t>(after - table_.blocks.begin()) - 1;  // of equal first rows the last: blocks may be empty
  return {static_cast<uint32_t>(block), row - table_.blocks[block].first_row};
}

bool Shard::is_resident(size_t block) const noexcept {
  const ipc::BlockExtent& extent = table_.blocks[block].extent;
  return file_.is_resident(static_cast<uint64_t>(extent.offset),
                           static_cast<uint64_t>(extent.metadata_bytes) + static_cast<uint64_t>(extent.body_bytes));
}

bool Shard::is_resident_about(size_t block, int64_t row) const noexcept {
  const BlockEntry& entry = table_.blocks[block];
  const double part = static_cast<double>(row) / static_cast<double>(std::max<int64_t>(1, entry.rows));
  const auto into = static_cast<uint64_t>(static_cast<double>(entry.extent.body_bytes) * part);
  return file_.is_resident(std::min<uint64_t>(body_offset(block) + into, file_.size() - 1), 1);
}

uint64_t Shard::body_offset(size_t block) const noexcept {
  const ipc::BlockExtent& extent = table_.blocks[block].extent;
  return static_cast<uint64_t>(extent.offset + extent.metadata_bytes);
}

ByteSpan Shard::body(size_t block) const noexcept {
  return file_.bytes().subspan(body_offset(block), static_cast<size_t>(table_.blocks[block].extent.body_bytes));
}

std::string Shard::place_in_file(size_t block) const {
  return "block " + std::to_string(block) + " at offset " + std::to_string(table_.blocks[block].extent.offset);
}

std::string Shard::place(size_t block) const { return name() + ": " + place_in_file(block); }

std::string Shard::where(size_t block) const { return place(block) + ": "; }

void Shard::throw_vanished(size_t block) const { file_.throw_vanished(place_in_file(block)); }

void Shard::rethrow(const Error& error, size_t block) const {
  if (error.code() == "vanished") throw_vanished(block);
  if (std::string_view(error.what()).starts_with(name())) throw;
  throw Error(error.kind(), error.code(), where(block) + error.what());
}

ipc::BatchLayout Shard::parse_metadata(size_t block, ByteSpan metadata) const {
  const BlockEntry& entry = table_.blocks[block];
  if (const uint64_t found = xxh3_64(metadata); found != entry.metadata_hash) {
    throw Error(ErrorKind::kCorrupt, "metadata_hash",
                where(block) + "xxh3 of its metadata is " + hex(found) + ", the index says " +
                    hex(entry.metadata_hash) + "; run \"fastshard verify\" or restore the file");
  }
  try {
    ipc::BatchLayout layout = ipc::parse_block(metadata, entry.extent.body_bytes, *context_.schema);
    if (layout.rows != entry.rows) {
      throw Error(ErrorKind::kCorrupt, "block_rows",
                  "it has " + std::to_string(layout.rows) + " rows, the index says " + std::to_string(entry.rows));
    }
    return layout;
  } catch (const Error& error) {
    throw Error(error.kind(), error.code(), where(block) + error.what());
  }
}

bool Shard::wants_check(Verify verify, size_t block, size_t column) const {
  return verify == Verify::kAlways || (verify == Verify::kOnce && !context_.checked->contains(number_, block, column));
}

void Shard::compare_column(Verify verify, size_t block, size_t column, ByteSpan extent) {
  if (!wants_check(verify, block, column)) return;
  context_.counters->columns_checked.fetch_add(1, std::memory_order_relaxed);
  context_.counters->bytes_checked.fetch_add(static_cast<int64_t>(extent.size()), std::memory_order_relaxed);
  compare(block, column, xxh3_64(extent));
  context_.checked->insert(number_, block, column);
}

Shard::OpenBlock& Shard::open_block(size_t block) {
  if (open_[block]) return *open_[block];
  const ipc::BlockExtent& extent = table_.blocks[block].extent;
  const std::vector<std::byte> metadata =
      file_.read(static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.metadata_bytes));
  open_[block] = std::make_unique<OpenBlock>(parse_metadata(block, metadata), context_.schema->fields.size());
  context_.counters->blocks_parsed.fetch_add(1, std::memory_order_relaxed);
  return *open_[block];
}

void Shard::compare(size_t block, size_t column, uint64_t found) const {
  const size_t columns = context_.schema->fields.size();
  const uint64_t expected = table_.column_hashes[block * columns + column];
  if (found == expected) return;
  throw Error(ErrorKind::kCorrupt, "column_hash",
              where(block) + "xxh3 of column '" + context_.schema->fields[column].name + "' is " + hex(found) +
                  ", the index says " + hex(expected) + "; run \"fastshard verify\" or restore the file");
}

void Shard::check_in_place(const OpenBlock& open, size_t block, size_t column) {
  const ipc::BufferExtent extent = open.layout.column_extent(column);
  const uint64_t found =
      file_.hash(body_offset(block) + static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.length));
  context_.counters->columns_checked.fetch_add(1, std::memory_order_relaxed);
  context_.counters->bytes_checked.fetch_add(extent.length, std::memory_order_relaxed);
  compare(block, column, found);
  context_.checked->insert(number_, block, column);
}

ipc::Storage Shard::copy_column(const OpenBlock& open, size_t block, size_t column) const {
  const ipc::BufferExtent extent = open.layout.column_extent(column);
  return file_.read_storage(body_offset(block) + static_cast<uint64_t>(extent.offset),
                            static_cast<uint64_t>(extent.length));
}

ipc::LoadedColumn Shard::load_compressed(const OpenBlock& open, size_t block, size_t column) {
  const ipc::BufferExtent extent = open.layout.column_extent(column);
  ipc::Storage copy;
  {
    const StageClock clock(stage_times().read_ns);
    copy = copy_column(open, block, column);
  }
  const StageClock clock(stage_times().decode_ns);
  compare_column(context_.verify, block, column, copy.span());
  context_.counters->columns_decompressed.fetch_add(1, std::memory_order_relaxed);
  return ipc::load_column(open.layout, copy.span(), extent.offset, *context_.schema, column);
}

void Shard::remember_plain(size_t block, size_t column, const std::byte* first_value) {
  auto* values = plain_[column].load(std::memory_order_relaxed);
  if (values == nullptr) {
    values = new std::atomic<const std::byte*>[blocks()]();
    plain_[column].store(values, std::memory_order_release);
  }
  values[block].store(first_value, std::memory_order_release);
}

ColumnRef Shard::column(size_t block, size_t column, DecodedCache& cache) {
  std::unique_lock lock(mutex_);
  try {
    OpenBlock& open = open_block(block);
    if (open.layout.compression == ipc::Compression::kNone) {
      std::unique_ptr<const ipc::LoadedColumn>& loaded = open.loaded[column];
      if (!loaded) {
        if (context_.verify == Verify::kOnce && wants_check(Verify::kOnce, block, column))
          check_in_place(open, block, column);
        loaded = std::make_unique<const ipc::LoadedColumn>(
            ipc::load_column(open.layout, body(block), 0, *context_.schema, column));
        const std::byte* const first_value = plain_values_of(loaded->view);
        remember_plain(block, column, first_value != nullptr ? first_value : kNotPlain);
      }
      return {ColumnRef(), loaded.get()};  // no owner: lives with the shard
    }
    const DecodedCache::Key key{number_, static_cast<uint32_t>(block), static_cast<uint32_t>(column)};
    if (plain_values(block, column) == nullptr) remember_plain(block, column, kNotPlain);
    lock.unlock();  // decompression is long, and the open block stays
    return cache.find_or_load(key, [&] {
      auto loaded = std::make_shared<const ipc::LoadedColumn>(load_compressed(open, block, column));
      size_t bytes = sizeof(ipc::LoadedColumn);
      for (const ipc::Storage& storage : loaded->storage) bytes += storage.size();
      return std::pair<ColumnRef, size_t>(std::move(loaded), bytes);
    });
  } catch (const Error& error) {
    rethrow(error, block);
  }
}

const Shard::OpenBlock& Shard::opened(size_t block) {
  const std::lock_guard lock(mutex_);
  return open_block(block);
}

void Shard::check(size_t block, size_t column) {
  try {
    check_in_place(opened(block), block, column);
  } catch (const Error& error) {
    rethrow(error, block);
  }
}

void Shard::check_readable(size_t block, size_t column) {
  try {
    (void)copy_column(opened(block), block, column);
  } catch (const Error& error) {
    rethrow(error, block);
  }
}

void Shard::check_mapped(size_t block, size_t column) {
  const OpenBlock* open = nullptr;
  {
    const std::lock_guard lock(mutex_);
    open = &open_block(block);
  }
  if (open->layout.compression == ipc::Compression::kNone) check_in_place(*open, block, column);
}

void Shard::check_values(size_t block, size_t column_index, DecodedCache& cache) {
  const ColumnRef ref = column(block, column_index, cache);
  const ipc::ArrayView* view = &ref->view;
  const OpenBlock& open = opened(block);
  // Values in the mapping are checked in a copy, so that no fault can strike while a message is being made.
  ipc::Storage copy;
  ipc::LoadedColumn copied;
  try {
    if (open.layout.compression == ipc::Compression::kNone) {
      copy = copy_column(open, block, column_index);
      const int64_t base = open.layout.column_extent(column_index).offset;
      copied = ipc::load_column(open.layout, copy.span(), base, *context_.schema, column_index);
      view = &copied.view;
    }
    ipc::check_values(*view);
  } catch (const Error& error) {
    rethrow(error, block);
  }
}

}  // namespace fastshard::pipeline
