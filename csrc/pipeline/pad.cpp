#include "pipeline/pad.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/error.h"

namespace fastshard::pipeline {
namespace {

size_t element_width(const ipc::Field& field) {
  return field.layout == ipc::Layout::kFixed ? static_cast<size_t>(field.byte_width) : 1;
}

template <size_t kWidth>
void fill_with(std::byte* out, size_t count, const std::byte* value) noexcept {
  for (size_t i = 0; i < count; ++i) std::memcpy(out + i * kWidth, value, kWidth);
}

void fill(std::byte* out, size_t count, size_t width, const std::byte* value) noexcept {
  if (std::all_of(value, value + width, [](std::byte byte) { return byte == std::byte{0}; })) {
    std::memset(out, 0, count * width);
    return;
  }
  switch (width) {
    case 1: return fill_with<1>(out, count, value);
    case 2: return fill_with<2>(out, count, value);
    case 4: return fill_with<4>(out, count, value);
    default: return fill_with<8>(out, count, value);
  }
}

// Row after row `lengths[row]` elements of `from`, which begin where the list does, and `value` behind them.
void spread(const Column& column, const int64_t* lengths, size_t length, size_t width, const std::byte* from,
            const std::byte* value, std::byte* out) noexcept {
  for (int64_t row = 0; row < column.length; ++row) {
    const auto count = static_cast<size_t>(lengths[row]);
    if (count != 0) std::memcpy(out, from + static_cast<size_t>(column.begin(row)) * width, count * width);
    if (count != length) fill(out + count * width, length - count, width, value);
    out += length * width;
  }
}

void pad_column(Column& column, const Padding& padding, std::span<const int64_t> ids, const ShardTable& table,
                BufferPool& pool) {
  const auto rows = static_cast<size_t>(column.length);
  Buffer lengths = pool.lease(rows * sizeof(int64_t));
  auto* const counts = lengths.as<int64_t>();
  for (size_t row = 0; row < rows; ++row) {
    const int64_t size = column.size(static_cast<int64_t>(row));
    if (size > padding.length && !padding.truncates) {
      throw Error(ErrorKind::kInvalid,
                  std::string(table.path(table.locate(ids[row]).shard)) + ": sample " + std::to_string(ids[row]) +
                      ": column '" + column.field->name + "' has a list of " + std::to_string(size) +
                      " values, pad= gives it " + std::to_string(padding.length) +
                      ": ask for a larger length, or for (length, value, \"truncate\") to cut longer lists");
    }
    counts[row] = std::min(size, padding.length);
  }
  Column& child = column.children[0];
  int64_t total = 0;
  int64_t bytes = 0;
  const size_t width = element_width(*child.field);
  if (!checked_multiply(column.length, padding.length, total) ||
      !checked_multiply(total, static_cast<int64_t>(width), bytes)) {
    throw Error(ErrorKind::kInvalid, "pad= of column '" + column.field->name + "' makes a batch too large for memory");
  }
  const auto length = static_cast<size_t>(padding.length);
  Buffer data = pool.lease(static_cast<size_t>(bytes));
  spread(column, counts, length, width, child.data.data(), padding.value.data(), data.data());
  child.data = std::move(data);
  if (child.has_nulls) {
    constexpr std::byte kValid{1};
    Buffer valid = pool.lease(static_cast<size_t>(total));
    spread(column, counts, length, 1, child.valid.data(), &kValid, valid.data());
    child.valid = std::move(valid);
  }
  child.length = total;
  column.offsets = Buffer();
  column.lengths = std::move(lengths);
}

}  // namespace

void pad(std::span<Column> columns, std::span<const Padding> paddings, std::span<const int64_t> ids,
         const ShardTable& table, BufferPool& pool) {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (paddings[i].length >= 0) pad_column(columns[i], paddings[i], ids, table, pool);
  }
}

}  // namespace fastshard::pipeline
