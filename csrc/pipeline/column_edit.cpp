#include "pipeline/column_edit.h"

#include <algorithm>
#include <cstring>

namespace fastshard::pipeline {
namespace {

using ipc::Layout;

int64_t value_width(const ipc::Field& field) {
  switch (field.layout) {
    case Layout::kFixed: return field.byte_width;
    case Layout::kBits:
    case Layout::kBinary32:
    case Layout::kBinary64:
    case Layout::kBinaryView: return 1;
    default: return 0;
  }
}

std::byte* append(std::byte* out, const Buffer& from, size_t bytes) {
  if (bytes != 0) std::memcpy(out, from.data(), bytes);
  return out + bytes;
}

}  // namespace

Column concatenate(std::vector<Column> parts, BufferPool& pool) {
  if (parts.size() == 1) return std::move(parts.front());
  Column joined;
  joined.field = parts.front().field;
  const bool has_offsets = !parts.front().offsets.empty();
  int64_t values = 0;
  for (const Column& part : parts) {
    joined.length += part.length;
    joined.has_nulls = joined.has_nulls || part.has_nulls;
    values += has_offsets ? part.begin(part.length) : part.length;
  }
  if (joined.has_nulls) {
    joined.valid = pool.lease(static_cast<size_t>(joined.length));
    std::byte* out = joined.valid.data();
    for (const Column& part : parts) {
      if (part.has_nulls) {
        out = append(out, part.valid, static_cast<size_t>(part.length));
      } else {
        std::memset(out, 1, static_cast<size_t>(part.length));
        out += part.length;
      }
    }
  }
  if (has_offsets) {
    joined.offsets = pool.lease(static_cast<size_t>(joined.length + 1) * sizeof(int64_t));
    auto* out = joined.offsets.as<int64_t>();
    int64_t base = 0;
    for (const Column& part : parts) {
      for (int64_t row = 0; row < part.length; ++row) *out++ = base + part.begin(row);
      base += part.begin(part.length);
    }
    *out = base;
  }
  if (const int64_t width = value_width(*joined.field); width > 0) {
    joined.data = pool.lease(static_cast<size_t>(values * width));
    std::byte* out = joined.data.data();
    for (const Column& part : parts) {
      const int64_t count = has_offsets ? part.begin(part.length) : part.length;
      out = append(out, part.data, static_cast<size_t>(count * width));
    }
  }
  for (size_t child = 0; child < parts.front().children.size(); ++child) {
    std::vector<Column> child_parts;
    for (Column& part : parts) child_parts.push_back(std::move(part.children[child]));
    joined.children.push_back(concatenate(std::move(child_parts), pool));
  }
  return joined;
}

namespace {

// `count` rows from `first` on.
struct Rows {
  int64_t first;
  int64_t count;
};

Column pick(const Column& column, const std::vector<Rows>& runs, int64_t total, BufferPool& pool) {
  Column out;
  out.field = column.field;
  out.length = total;
  if (column.has_nulls) {
    out.valid = pool.lease(static_cast<size_t>(total));
    std::byte* at = out.valid.data();
    for (const Rows& rows : runs) at = std::copy_n(column.valid.data() + rows.first, rows.count, at);
    out.has_nulls = std::any_of(out.valid.data(), at, [](std::byte valid) { return valid == std::byte{0}; });
  }
  std::vector<Rows> below;  // the same rows, in children or characters
  int64_t total_below = total;
  if (!column.offsets.empty()) {
    out.offsets = pool.lease(static_cast<size_t>(total + 1) * sizeof(int64_t));
    auto* at = out.offsets.as<int64_t>();
    total_below = 0;
    for (const Rows& rows : runs) {
      const int64_t begin = column.begin(rows.first);
      for (int64_t row = rows.first; row < rows.first + rows.count; ++row)
        *at++ = total_below + column.begin(row) - begin;
      below.push_back({begin, column.begin(rows.first + rows.count) - begin});
      total_below += below.back().count;
    }
    *at = total_below;
  } else if (column.field->layout == Layout::kFixedList) {
    const int64_t size = column.field->list_size;
    for (const Rows& rows : runs) below.push_back({rows.first * size, rows.count * size});
    total_below = total * size;
  }
  const std::vector<Rows>& inner = below.empty() ? runs : below;
  if (const auto width = static_cast<size_t>(value_width(*column.field)); width > 0) {
    out.data = pool.lease(static_cast<size_t>(total_below) * width);
    std::byte* at = out.data.data();
    for (const Rows& rows : inner) {
      if (rows.count != 0) {
        std::memcpy(at, column.data.data() + static_cast<size_t>(rows.first) * width,
                    static_cast<size_t>(rows.count) * width);
      }
      at += static_cast<size_t>(rows.count) * width;
    }
  }
  for (const Column& child : column.children) out.children.push_back(pick(child, inner, total_below, pool));
  return out;
}

}  // namespace

Column reorder(const Column& column, std::span<const int64_t> order, BufferPool& pool) {
  std::vector<Rows> runs;
  for (const int64_t row : order) {
    if (!runs.empty() && runs.back().first + runs.back().count == row) {
      ++runs.back().count;
    } else {
      runs.push_back({row, 1});
    }
  }
  return pick(column, runs, static_cast<int64_t>(order.size()), pool);
}

}  // namespace fastshard::pipeline
