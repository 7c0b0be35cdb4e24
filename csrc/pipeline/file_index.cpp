#include "pipeline/file_index.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/fault_guard.h"
#include "pipeline/guarded_file.h"

namespace fastshard::pipeline {
namespace {

using ipc::ArrayView;
using ipc::Layout;

void add_checked(int64_t& sum, int64_t value, const char* what) {
  if (!checked_add(sum, value, sum)) {
    throw Error(ErrorKind::kCorrupt, "node_length", std::string("an impossible number of ") + what);
  }
}

// Nulls in rows [first, first + count) of a view, and in the descendants that its valid rows can see.
int64_t count_nulls(const ArrayView& view, int64_t first, int64_t count) {
  if (view.field->layout == Layout::kNull) return count;
  if (view.validity == nullptr) return 0;
  int64_t valid = 0;
  int64_t row = first;
  const int64_t end = first + count;
  while (row < end && row % 8 != 0) valid += view.valid(row++) ? 1 : 0;
  for (; row + 64 <= end; row += 64) valid += __builtin_popcountll(load<uint64_t>(view.validity + row / 8));
  while (row < end) valid += view.valid(row++) ? 1 : 0;
  return count - valid;
}

bool is_list(Layout layout) {
  return layout == Layout::kList32 || layout == Layout::kList64 || layout == Layout::kListView32 ||
         layout == Layout::kListView64;
}

int64_t nulls_below(const ArrayView& view, int64_t first, int64_t count);

int64_t nulls_at_and_below(const ArrayView& view, int64_t first, int64_t count) {
  return count_nulls(view, first, count) + nulls_below(view, first, count);
}

bool has_nulls(const ArrayView& view) {
  if (view.validity != nullptr || view.field->layout == Layout::kNull) return true;
  return std::any_of(view.children.begin(), view.children.end(), has_nulls);
}

int64_t nulls_below(const ArrayView& view, int64_t first, int64_t count) {
  if (view.children.empty() || std::none_of(view.children.begin(), view.children.end(), has_nulls)) return 0;
  int64_t nulls = 0;
  for (int64_t row = first; row < first + count; ++row) {
    if (!view.valid(row)) continue;
    if (view.field->layout == Layout::kStruct) {
      for (const ArrayView& child : view.children) nulls += nulls_at_and_below(child, row, 1);
    } else if (view.field->layout == Layout::kFixedList) {
      nulls += nulls_at_and_below(view.children[0], row * view.field->list_size, view.field->list_size);
    } else {
      ipc::ValueRange range;
      if (value_range(view, row, view.children[0].length, range))
        nulls += nulls_at_and_below(view.children[0], range.begin, range.size);
    }
  }
  return nulls;
}

void add_length(int64_t length, ColumnStats& stats) {
  stats.min_length = stats.min_length < 0 ? length : std::min(stats.min_length, length);
  stats.max_length = std::max(stats.max_length, length);
}

void add_lengths(const ArrayView& view, ColumnStats& stats) {
  for (int64_t row = 0; row < view.length; ++row) {
    if (!view.valid(row)) continue;
    if (view.field->layout == Layout::kBinaryView) {
      add_length(load<int32_t>(view.values + row * 16), stats);
    } else {
      ipc::ValueRange range;
      (void)value_range(view, row, is_list(view.field->layout) ? view.children[0].length : view.data_bytes, range);
      add_length(range.size, stats);
    }
  }
}

// Of one column before compression. `bytes` begins at `base` in the body.
int64_t raw_bytes(const ipc::BatchLayout& layout, size_t column, ByteSpan bytes, int64_t base) {
  int64_t sum = 0;
  for (uint32_t i = layout.first_buffer[column]; i < layout.first_buffer[column + 1]; ++i) {
    const ipc::BufferExtent& buffer = layout.buffers[i];
    int64_t length = buffer.length;
    if (length != 0 && layout.compression != ipc::Compression::kNone) {
      length = ipc::uncompressed_length(
          bytes.subspan(static_cast<size_t>(buffer.offset - base), static_cast<size_t>(buffer.length)),
          layout.compression);
    }
    add_checked(sum, length, "uncompressed bytes");
  }
  return sum;
}

IndexedBlock index_block(const GuardedFile& file, const ipc::BlockExtent& extent, FileIndex& index) {
  IndexedBlock block;
  block.extent = extent;
  const std::vector<std::byte> metadata =
      file.read(static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.metadata_bytes));
  const ipc::BatchLayout layout = ipc::parse_block(metadata, extent.body_bytes, index.schema);
  block.rows = layout.rows;
  block.metadata_hash = xxh3_64(metadata);
  const auto body = static_cast<uint64_t>(extent.offset + extent.metadata_bytes);
  for (size_t column = 0; column < index.schema.fields.size(); ++column) {
    const ipc::BufferExtent bytes = layout.column_extent(column);
    const ipc::Storage copy =
        file.read_storage(body + static_cast<uint64_t>(bytes.offset), static_cast<uint64_t>(bytes.length));
    block.column_hashes.push_back(xxh3_64(copy.span()));
    const ipc::LoadedColumn loaded = ipc::load_column(layout, copy.span(), bytes.offset, index.schema, column);
    ipc::check_values(loaded.view);
    add_statistics(loaded.view, index.columns[column]);
    add_checked(index.raw_bytes, raw_bytes(layout, column, copy.span(), bytes.offset), "uncompressed bytes");
  }
  add_checked(index.rows, block.rows, "rows");
  file.release(static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.metadata_bytes + extent.body_bytes));
  return block;
}

// R where every block but the last has R rows and the last 1 to R; else 0.
int64_t regular_rows(const std::vector<IndexedBlock>& blocks) {
  if (blocks.empty()) return 0;
  const int64_t rows = blocks.front().rows;
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    if (blocks[i].rows != rows) return 0;
  }
  return blocks.back().rows >= 1 && blocks.back().rows <= rows ? rows : 0;
}

}  // namespace

void add_statistics(const ArrayView& view, ColumnStats& stats) {
  stats.null_count += count_nulls(view, 0, view.length);
  stats.child_null_count += nulls_below(view, 0, view.length);
  switch (view.field->layout) {
    case Layout::kBinary32:
    case Layout::kBinary64:
    case Layout::kBinaryView:
    case Layout::kList32:
    case Layout::kList64:
    case Layout::kListView32:
    case Layout::kListView64: add_lengths(view, stats); break;
    case Layout::kFixedList:
      if (count_nulls(view, 0, view.length) < view.length) add_length(view.field->list_size, stats);
      break;
    default: break;
  }
}

FileIndex index_file(const std::string& path, const std::string& name, ipc::FileKind kind) {
  install_fault_handler();
  const GuardedFile file(path, name, io::Access::kSequential);
  FileIndex index;
  try {
    ipc::Outline outline = ipc::parse_outline(file, kind);
    index.schema_message = std::move(outline.schema_message);
    index.schema = std::move(outline.schema);
    index.columns.resize(index.schema.fields.size());
    index.bytes = static_cast<int64_t>(file.size());
    index.blocks.reserve(outline.blocks.size());
    for (size_t i = 0; i < outline.blocks.size(); ++i) {
      try {
        index.blocks.push_back(index_block(file, outline.blocks[i], index));
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::kIo) throw;
        throw Error(error.kind(), error.code(),
                    "block " + std::to_string(i) + " at offset " + std::to_string(outline.blocks[i].offset) + ": " +
                        error.what());
      }
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kIo) throw;
    throw Error(error.kind(), error.code(), name + ": " + error.what());
  }
  index.block_rows = regular_rows(index.blocks);
  index.hash = file.hash_all();
  return index;
}

}  // namespace fastshard::pipeline
