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

Column reorder(const Column& column, std::span<const int64_t> order, BufferPool& pool) {
  Column out;
  out.field = column.field;
  out.length = static_cast<int64_t>(order.size());
  if (column.has_nulls) {
    out.valid = pool.lease(order.size());
    for (size_t i = 0; i < order.size(); ++i) out.valid.data()[i] = column.valid.data()[order[i]];
    out.has_nulls = std::any_of(out.valid.data(), out.valid.data() + order.size(),
                                [](std::byte valid) { return valid == std::byte{0}; });
  }
  std::vector<int64_t> child_order;
  if (!column.offsets.empty()) {
    out.offsets = pool.lease((order.size() + 1) * sizeof(int64_t));
    auto* const offsets = out.offsets.as<int64_t>();
    offsets[0] = 0;
    for (size_t i = 0; i < order.size(); ++i) offsets[i + 1] = offsets[i] + column.size(order[i]);
    if (column.children.empty()) {
      out.data = pool.lease(static_cast<size_t>(offsets[order.size()]));
      for (size_t i = 0; i < order.size(); ++i) {
        if (column.size(order[i]) != 0)
          std::memcpy(out.data.data() + offsets[i], column.data.data() + column.begin(order[i]),
                      static_cast<size_t>(column.size(order[i])));
      }
      return out;
    }
    child_order.reserve(static_cast<size_t>(offsets[order.size()]));
    for (const int64_t row : order) {
      for (int64_t value = column.begin(row); value < column.begin(row + 1); ++value) child_order.push_back(value);
    }
  } else if (column.field->layout == Layout::kFixedList) {
    const int64_t size = column.field->list_size;
    child_order.reserve(order.size() * static_cast<size_t>(size));
    for (const int64_t row : order) {
      for (int64_t value = row * size; value < (row + 1) * size; ++value) child_order.push_back(value);
    }
  } else if (column.field->layout == Layout::kStruct) {
    child_order.assign(order.begin(), order.end());
  } else if (const auto width = static_cast<size_t>(value_width(*column.field)); width > 0) {
    out.data = pool.lease(order.size() * width);
    for (size_t i = 0; i < order.size(); ++i)
      std::memcpy(out.data.data() + i * width, column.data.data() + static_cast<size_t>(order[i]) * width, width);
  }
  for (const Column& child : column.children) out.children.push_back(reorder(child, child_order, pool));
  return out;
}

}  // namespace fastshard::pipeline
