#include "pipeline/file_index.h"

#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/fault_guard.h"
#include "io/mapped_file.h"

namespace fastshard::pipeline {
namespace {

using ipc::ArrayView;
using ipc::Layout;

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

int64_t raw_bytes(const ipc::BatchLayout& layout, ByteSpan body) {
  int64_t sum = 0;
  for (const ipc::BufferExtent& buffer : layout.buffers) {
    int64_t length = buffer.length;
    if (length != 0 && layout.compression != ipc::Compression::kNone) {
      length = ipc::uncompressed_length(
          body.subspan(static_cast<size_t>(buffer.offset), static_cast<size_t>(buffer.length)), layout.compression);
    }
    if (!checked_add(sum, length, sum))
      throw Error(ErrorKind::kCorrupt, "compressed_length", "impossible uncompressed size");
  }
  return sum;
}

IndexedBlock index_block(ByteSpan file, const ipc::BlockExtent& extent, FileIndex& index) {
  IndexedBlock block;
  block.extent = extent;
  const ipc::BatchLayout layout = ipc::parse_block(file, extent, index.schema);
  block.rows = layout.rows;
  const ByteSpan metadata =
      file.subspan(static_cast<size_t>(extent.offset), static_cast<size_t>(extent.metadata_bytes));
  const ByteSpan body =
      file.subspan(static_cast<size_t>(extent.offset + extent.metadata_bytes), static_cast<size_t>(extent.body_bytes));
  block.metadata_hash = xxh3_64(metadata);
  for (size_t column = 0; column < index.schema.fields.size(); ++column) {
    const ipc::BufferExtent bytes = layout.column_extent(column);
    block.column_hashes.push_back(
        xxh3_64(body.subspan(static_cast<size_t>(bytes.offset), static_cast<size_t>(bytes.length))));
    const ipc::LoadedColumn loaded = ipc::load_column(layout, body, 0, index.schema, column);
    ipc::check_values(loaded.view);
    add_statistics(loaded.view, index.columns[column]);
  }
  if (!checked_add(index.rows, block.rows, index.rows))
    throw Error(ErrorKind::kCorrupt, "node_length", "impossible number of rows");
  index.raw_bytes += raw_bytes(layout, body);
  return block;
}

// The hash of the whole file, in steps whose pages are given back.
Hash128 hash_file(const io::MappedFile& file) {
  constexpr size_t kStep = size_t{8} << 20;
  XXH3_state_t* const state = XXH3_createState();
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state);
  const ByteSpan bytes = file.bytes();
  for (size_t offset = 0; offset < bytes.size(); offset += kStep) {
    const size_t step = std::min(kStep, bytes.size() - offset);
    XXH3_128bits_update(state, bytes.data() + offset, step);
    file.release(offset, step);
  }
  const Hash128 hash = canonical(XXH3_128bits_digest(state));
  XXH3_freeState(state);
  return hash;
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
    case Layout::kListView64:
      add_lengths(view, stats);
      break;
    case Layout::kFixedList:
      if (count_nulls(view, 0, view.length) < view.length) add_length(view.field->list_size, stats);
      break;
    default:
      break;
  }
}

FileIndex index_file(const std::string& path, const std::string& name, ipc::FileKind kind) {
  const io::MappedFile file(path, name, io::Access::kSequential);
  FileIndex index;
  try {
    const ipc::Outline outline = ipc::parse_outline(file.bytes(), kind);
    index.schema_message.assign(outline.schema_message.begin(), outline.schema_message.end());
    index.schema = outline.schema;
    index.columns.resize(index.schema.fields.size());
    index.bytes = static_cast<int64_t>(file.bytes().size());
    index.blocks.reserve(outline.blocks.size());
    for (size_t i = 0; i < outline.blocks.size(); ++i) {
      try {
        const ipc::BlockExtent& extent = outline.blocks[i];
        index.blocks.push_back(index_block(file.bytes(), extent, index));
        file.release(static_cast<size_t>(extent.offset),
                     static_cast<size_t>(extent.metadata_bytes + extent.body_bytes));
      } catch (const Error& error) {
        throw Error(error.kind(), error.code(),
                    "block " + std::to_string(i) + " at offset " + std::to_string(outline.blocks[i].offset) + ": " +
                        error.what());
      }
    }
  } catch (const Error& error) {
    throw Error(error.kind(), error.code(), name + ": " + error.what());
  }
  index.block_rows = regular_rows(index.blocks);
  index.hash = hash_file(file);
  return index;
}

}  // namespace fastshard::pipeline
