// A column of one block as typed, checked spans. Buffer sizes are validated against lengths here; values that are
// themselves offsets are checked where they are used (mapped bytes can change under us): see `value_range`.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "ipc/codec.h"
#include "ipc/message.h"

namespace fastshard::ipc {

struct ArrayView {
  const Field* field = nullptr;
  int64_t length = 0;
  const std::byte* validity = nullptr;  // bits; null where every value is valid
  const std::byte* values = nullptr;    // kBits, kFixed: values; kBinary*: characters; kBinaryView: 16-byte views
  const std::byte* offsets =
      nullptr;  // kBinary*, kList*: length + 1 offsets; kListView*: length offsets; may be null where length is 0
  const std::byte* sizes = nullptr;  // kListView*
  int64_t data_bytes = 0;            // kBinary*: bytes of `values`
  std::vector<ByteSpan> view_data;   // kBinaryView
  std::vector<ArrayView> children;

  [[nodiscard]] bool valid(int64_t row) const noexcept { return validity == nullptr || bit_at(validity, row); }
};

struct ValueRange {
  int64_t begin = 0;
  int64_t size = 0;
};

// Start and size of a variable-length value, loaded once and checked against `limit` (data bytes or child length).
// Returns false where they do not fit; never throws, so that it may run under a fault guard.
[[nodiscard]] inline bool value_range(const ArrayView& view, int64_t row, int64_t limit, ValueRange& range) noexcept {
  int64_t begin = 0;
  int64_t end = 0;
  switch (view.field->layout) {
    case Layout::kBinary32:
    case Layout::kList32:
      begin = load<int32_t>(view.offsets + row * 4);
      end = load<int32_t>(view.offsets + row * 4 + 4);
      break;
    case Layout::kBinary64:
    case Layout::kList64:
      begin = load<int64_t>(view.offsets + row * 8);
      end = load<int64_t>(view.offsets + row * 8 + 8);
      break;
    case Layout::kListView32:
      begin = load<int32_t>(view.offsets + row * 4);
      if (__builtin_add_overflow(begin, int64_t{load<int32_t>(view.sizes + row * 4)}, &end)) return false;
      break;
    case Layout::kListView64:
      begin = load<int64_t>(view.offsets + row * 8);
      if (__builtin_add_overflow(begin, load<int64_t>(view.sizes + row * 8), &end)) return false;
      break;
    default: return false;
  }
  range = {begin, end - begin};
  return 0 <= begin && begin <= end && end <= limit;
}

// The bytes of a view value (16 bytes: length, then either the value or prefix, buffer and offset).
[[nodiscard]] inline bool view_value(const ArrayView& view, int64_t row, ByteSpan& value) noexcept {
  const std::byte* at = view.values + row * 16;
  const auto size = load<int32_t>(at);
  if (size < 0) return false;
  if (size <= 12) {
    value = {at + 4, static_cast<size_t>(size)};
    return true;
  }
  const auto buffer = load<int32_t>(at + 8);
  const auto offset = load<int32_t>(at + 12);
  if (buffer < 0 || static_cast<size_t>(buffer) >= view.view_data.size() || offset < 0) return false;
  const ByteSpan data = view.view_data[static_cast<size_t>(buffer)];
  if (!range_fits(static_cast<uint64_t>(offset), static_cast<uint64_t>(size), data.size())) return false;
  value = data.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
  return true;
}

// A loaded column: the view and whatever had to be decompressed for it.
struct LoadedColumn {
  ArrayView view;
  std::vector<Storage> storage;
};

// Validates (and decompresses) top-level column `column` of a batch. `bytes` is the part of the body that begins at
// `base` and holds at least the column's extent. Without compression only pointers are computed, no byte of it is read;
// with compression the view refers to `storage` alone, and `bytes` may go.
[[nodiscard]] LoadedColumn load_column(const BatchLayout& layout, ByteSpan bytes, int64_t base, const Schema& schema,
                                       size_t column);

// Every value offset, view and UTF-8 string of a column; throws at the first that is wrong. For verification.
void check_values(const ArrayView& view);

}  // namespace fastshard::ipc
