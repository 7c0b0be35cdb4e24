#include "pipeline/tables.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/utf8.h"
#include "ipc/array_view.h"

namespace fastshard::pipeline {
namespace {

using ipc::ArrayView;
using ipc::Layout;
using ipc::Type;

[[noreturn]] void corrupt(const char* code, const std::string& what) { throw Error(ErrorKind::kCorrupt, code, what); }

// One column of a table by name: present, of the expected type, without nulls.
class TableColumn {
 public:
  TableColumn(const ipc::Schema& schema, const ipc::BatchLayout& layout, ByteSpan body, const std::string& name,
              Type type) {
    for (size_t i = 0; i < schema.fields.size(); ++i) {
      if (schema.fields[i].name != name) continue;
      if (schema.fields[i].type != type)
        corrupt("table_schema", "its column '" + name + "' is " + schema.fields[i].type_name());
      loaded_ = ipc::load_column(layout, body, 0, schema, i);
      for (int64_t row = 0; row < loaded_.view.length; ++row) {
        if (!loaded_.view.valid(row)) corrupt("table_schema", "its column '" + name + "' has a null");
      }
      return;
    }
    corrupt("table_schema", "it has no column '" + name + "'");
  }
  template <typename T>
  [[nodiscard]] T at(int64_t row) const {
    return load<T>(loaded_.view.values + row * static_cast<int64_t>(sizeof(T)));
  }
  [[nodiscard]] const ArrayView& view() const noexcept { return loaded_.view; }

 private:
  ipc::LoadedColumn loaded_;
};

// docs/format.md section 2: relative, and never outside the directory.
bool is_safe_path(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.find('\0') != path.npos || path.find('\\') != path.npos) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

int64_t in_range(int64_t value, int64_t low, const char* what, size_t shard) {
  if (value < low)
    corrupt("table_value", "shard " + std::to_string(shard) + " has " + std::to_string(value) + " " + what);
  return value;
}

ipc::Schema block_table_schema(size_t columns) {
  const auto fixed = [](const char* name, Type type) {
    ipc::Field field;
    field.name = name;
    field.type = type;
    field.layout = Layout::kFixed;
    field.byte_width = 8;
    return field;
  };
  ipc::Schema schema;
  for (const char* name : {"offset", "metadata_bytes", "body_bytes", "rows"})
    schema.fields.push_back(fixed(name, Type::kInt64));
  schema.fields.push_back(fixed("metadata_hash", Type::kUInt64));
  ipc::Field hashes;
  hashes.name = "column_hashes";
  hashes.type = Type::kFixedList;
  hashes.layout = Layout::kFixedList;
  hashes.list_size = static_cast<int32_t>(columns);
  hashes.children.push_back(fixed("item", Type::kUInt64));
  schema.fields.push_back(hashes);
  return schema;
}

}  // namespace

void ShardTable::append(const ipc::Outline& outline, ByteSpan file, size_t block) {
  const ipc::BlockExtent& extent = outline.blocks[block];
  const ByteSpan message = file.subspan(static_cast<size_t>(extent.offset));
  const ByteSpan body =
      message.subspan(static_cast<size_t>(extent.metadata_bytes), static_cast<size_t>(extent.body_bytes));
  const ipc::BatchLayout layout =
      ipc::parse_block(message.first(static_cast<size_t>(extent.metadata_bytes)), extent.body_bytes, outline.schema);
  const auto column = [&](const char* column_name, Type type) {
    return TableColumn(outline.schema, layout, body, column_name, type);
  };
  const TableColumn path = column("path", Type::kUtf8);
  const TableColumn rows = column("rows", Type::kInt64);
  const TableColumn bytes = column("bytes", Type::kInt64);
  const TableColumn blocks = column("blocks", Type::kInt64);
  const TableColumn block_rows = column("block_rows", Type::kInt64);
  const TableColumn raw_bytes = column("raw_bytes", Type::kInt64);
  const TableColumn hash = column("hash", Type::kFixedBinary);
  const TableColumn table_offset = column("table_offset", Type::kInt64);
  const TableColumn table_bytes = column("table_bytes", Type::kInt64);
  const TableColumn table_hash = column("table_hash", Type::kUInt64);
  if (hash.view().field->byte_width != 16) corrupt("table_schema", "its column 'hash' is not 16 bytes wide");
  for (int64_t row = 0; row < layout.rows; ++row) {
    const size_t shard = size();
    ipc::ValueRange range;
    if (!value_range(path.view(), row, path.view().data_bytes, range)) corrupt("table_value", "its paths are broken");
    const std::string_view text(reinterpret_cast<const char*>(path.view().values) + range.begin,
                                static_cast<size_t>(range.size));
    if (!is_utf8(std::as_bytes(std::span(text))))
      corrupt("table_path", "the path of shard " + std::to_string(shard) + " is not UTF-8");
    if (!is_safe_path(text)) {
      corrupt("table_path", "the path of shard " + std::to_string(shard) + " is not relative to the data set: '" +
                                std::string(text) + "'");
    }
    paths_.append(text);
    path_end_.push_back(paths_.size());
    int64_t end = 0;
    if (!checked_add(first_row_.back(), in_range(rows.at<int64_t>(row), 1, "rows", shard), end)) {
      corrupt("table_value", "its rows are more than 2^63");
    }
    first_row_.push_back(end);
    bytes_.push_back(in_range(bytes.at<int64_t>(row), 1, "bytes", shard));
    blocks_.push_back(in_range(blocks.at<int64_t>(row), 1, "blocks", shard));
    block_rows_.push_back(in_range(block_rows.at<int64_t>(row), 0, "rows a block", shard));
    raw_bytes_.push_back(in_range(raw_bytes.at<int64_t>(row), 0, "raw bytes", shard));
    table_offset_.push_back(in_range(table_offset.at<int64_t>(row), 0, "as its place in the block table", shard));
    table_bytes_.push_back(in_range(table_bytes.at<int64_t>(row), 1, "bytes in the block table", shard));
    table_hash_.push_back(table_hash.at<uint64_t>(row));
    Hash128 value;
    std::memcpy(value.data(), hash.view().values + row * 16, 16);
    hash_.push_back(value);
  }
}

ShardTable ShardTable::parse(ByteSpan file, const std::string& name, int64_t rows, int64_t shards) {
  try {
    const ipc::Outline outline = ipc::parse_outline(ipc::SpanSource(file), ipc::FileKind::kFile);
    ShardTable table;
    for (size_t block = 0; block < outline.blocks.size(); ++block) table.append(outline, file, block);
    if (static_cast<int64_t>(table.size()) != shards || table.total_rows() != rows) {
      corrupt("table_totals", "it has " + std::to_string(table.size()) + " shards of " +
                                  std::to_string(table.total_rows()) + " rows, index.json says " +
                                  std::to_string(shards) + " of " + std::to_string(rows));
    }
    return table;
  } catch (const Error& error) {
    throw Error(error.kind(), error.code(), name + " (the shard table): " + error.what());
  }
}

ShardPlace ShardTable::locate(int64_t id) const noexcept {
  const size_t count = size();
  // Shards are near-equal as a rule: begin at the proportional guess and double the step until the id is between.
  const double guess = static_cast<double>(id) * (static_cast<double>(count) / static_cast<double>(total_rows()));
  size_t low = std::min(static_cast<size_t>(guess), count - 1);
  if (first_row_[low] <= id && id < first_row_[low + 1]) return {static_cast<uint32_t>(low), id - first_row_[low]};
  size_t high = low + 1;
  size_t step = 1;
  while (first_row_[low] > id) {
    high = low;
    low = low >= step ? low - step : 0;
    step *= 2;
  }
  while (high < count && first_row_[high] <= id) {
    low = high;
    high = std::min(count, high + step);
    step *= 2;
  }
  const auto begin = first_row_.begin();
  const auto after = std::upper_bound(begin + static_cast<ptrdiff_t>(low), begin + static_cast<ptrdiff_t>(high), id);
  const auto shard = static_cast<size_t>(after - begin) - 1;
  return {static_cast<uint32_t>(shard), id - first_row_[shard]};
}

Hash128 ShardTable::fingerprint(size_t shards) const {
  XXH3_state_t* const state = XXH3_createState();
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state);
  for (size_t shard = 0; shard < shards; ++shard) {
    const int64_t numbers[2] = {rows(shard), bytes_[shard]};
    XXH3_128bits_update(state, numbers, sizeof(numbers));
    XXH3_128bits_update(state, hash_[shard].data(), hash_[shard].size());
  }
  const Hash128 fingerprint = canonical(XXH3_128bits_digest(state));
  XXH3_freeState(state);
  return fingerprint;
}

BlockTable BlockTable::parse(ByteSpan message, const ShardTable& shards, size_t shard, size_t columns) {
  const ipc::Schema schema = block_table_schema(columns);
  const ipc::Message parsed = ipc::parse_message(message);
  const auto metadata_bytes_here = static_cast<size_t>(parsed.metadata_bytes);
  const ByteSpan body = message.subspan(metadata_bytes_here);
  const ipc::BatchLayout layout =
      ipc::parse_block(message.first(metadata_bytes_here), static_cast<int64_t>(body.size()), schema);
  if (layout.compression != ipc::Compression::kNone) corrupt("table_schema", "it is compressed");
  if (layout.rows != shards.blocks(shard)) {
    corrupt("table_totals", "it has " + std::to_string(layout.rows) + " blocks, the shard table says " +
                                std::to_string(shards.blocks(shard)));
  }
  const auto column = [&](const char* name, Type type) { return TableColumn(schema, layout, body, name, type); };
  const TableColumn offset = column("offset", Type::kInt64);
  const TableColumn metadata_bytes = column("metadata_bytes", Type::kInt64);
  const TableColumn body_bytes = column("body_bytes", Type::kInt64);
  const TableColumn rows = column("rows", Type::kInt64);
  const TableColumn metadata_hash = column("metadata_hash", Type::kUInt64);
  const TableColumn hashes = column("column_hashes", Type::kFixedList);

  BlockTable table;
  table.blocks.reserve(static_cast<size_t>(layout.rows));
  const auto file_bytes = static_cast<uint64_t>(shards.bytes(shard));
  const int64_t regular = shards.block_rows(shard);
  int64_t first_row = 0;
  for (int64_t row = 0; row < layout.rows; ++row) {
    BlockEntry entry;
    entry.extent = {offset.at<int64_t>(row), metadata_bytes.at<int64_t>(row), body_bytes.at<int64_t>(row)};
    entry.rows = rows.at<int64_t>(row);
    entry.first_row = first_row;
    entry.metadata_hash = metadata_hash.at<uint64_t>(row);
    const ipc::BlockExtent& extent = entry.extent;
    if (extent.offset < 0 || extent.metadata_bytes < 0 || extent.body_bytes < 0 ||
        !range_fits(static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.metadata_bytes), file_bytes) ||
        !range_fits(static_cast<uint64_t>(extent.offset + extent.metadata_bytes),
                    static_cast<uint64_t>(extent.body_bytes), file_bytes)) {
      corrupt("table_value",
              "block " + std::to_string(row) + " lies outside the shard's " + std::to_string(file_bytes) + " bytes");
    }
    const bool last = row + 1 == layout.rows;
    if (entry.rows < 0 || (regular != 0 && (last ? entry.rows < 1 || entry.rows > regular : entry.rows != regular)) ||
        !checked_add(first_row, entry.rows, first_row)) {
      corrupt("table_value", "block " + std::to_string(row) + " has " + std::to_string(entry.rows) + " rows, " +
                                 std::to_string(regular) + " were expected");
    }
    table.blocks.push_back(entry);
  }
  if (first_row != shards.rows(shard)) {
    corrupt("table_totals", "its blocks have " + std::to_string(first_row) + " rows, the shard table says " +
                                std::to_string(shards.rows(shard)));
  }
  const size_t count = table.blocks.size() * columns;
  table.column_hashes.resize(count);
  if (count != 0) std::memcpy(table.column_hashes.data(), hashes.view().children[0].values, count * 8);
  return table;
}

}  // namespace fastshard::pipeline
