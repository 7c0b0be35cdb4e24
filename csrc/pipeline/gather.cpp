#include "pipeline/gather.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/fault_guard.h"

namespace fastshard::pipeline {
namespace {

using ipc::ArrayView;
using ipc::Field;
using ipc::Layout;
using ipc::ValueRange;

constexpr size_t kCacheLine = 64;
constexpr size_t kPrefetchAhead = 96;  // rows; covers a miss to memory and its page walk at the copy rate of small rows

size_t bytes_of(int64_t count, int64_t width) {
  int64_t bytes = 0;
  if (!checked_multiply(count, width, bytes)) {
    throw Error(ErrorKind::kInvalid, "a column of " + std::to_string(count) + " values is too large for memory");
  }
  return static_cast<size_t>(bytes);
}

template <size_t kWidth>
void copy_rows(const std::byte* const* sources, size_t count, std::byte* out) noexcept {
  const size_t ahead = std::min(count, kPrefetchAhead);
  for (size_t i = 0; i < ahead; ++i) __builtin_prefetch(sources[i]);
  for (size_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < count) {
      const std::byte* const next = sources[i + kPrefetchAhead];
      __builtin_prefetch(next);
      if constexpr (kWidth > kCacheLine / 2) __builtin_prefetch(next + kWidth - 1);
    }
    std::memcpy(out + i * kWidth, sources[i], kWidth);
  }
}

void copy_wide_rows(const std::byte* const* sources, size_t count, size_t width, std::byte* out) noexcept {
  // Of wide rows only the head is fetched ahead: the hardware follows a sequential read by itself.
  const size_t head = std::min<size_t>(width, 4 * kCacheLine);
  const size_t distance = width <= 512 ? 12 : 3;
  for (size_t i = 0; i < count; ++i) {
    if (i + distance < count) {
      for (size_t at = 0; at < head; at += kCacheLine) __builtin_prefetch(sources[i + distance] + at);
    }
    std::memcpy(out + i * width, sources[i], width);
  }
}

class Gatherer {
 public:
  Gatherer(BufferPool& pool, bool leaves) : pool_(pool), leaves_(leaves) {}

  GatherStatus gather_column(const Field& field, std::span<const Run> runs, int64_t total, Column& column) {
    column.field = &field;
    column.length = total;
    if (field.layout == Layout::kNull) {
      column.has_nulls = total > 0;
      column.valid = pool_.lease(static_cast<size_t>(total));
      std::memset(column.valid.data(), 0, static_cast<size_t>(total));
      return GatherStatus::kOk;
    }
    if (const GatherStatus status = gather_validity(runs, column); status != GatherStatus::kOk) return status;
    switch (field.layout) {
      case Layout::kNull: break;
      case Layout::kBits: return gather_bits(runs, column);
      case Layout::kFixed: return gather_fixed(runs, column);
      case Layout::kBinary32:
      case Layout::kBinary64:
      case Layout::kBinaryView: return gather_binary(runs, column);
      case Layout::kList32:
      case Layout::kList64:
      case Layout::kListView32:
      case Layout::kListView64: return gather_list(runs, column);
      case Layout::kFixedList: return gather_fixed_list(runs, column);
      case Layout::kStruct: return gather_struct(runs, column);
    }
    return GatherStatus::kOk;
  }

 private:
  GatherStatus gather_validity(std::span<const Run> runs, Column& column) {
    if (std::none_of(runs.begin(), runs.end(), [](const Run& run) { return run.view->validity != nullptr; }))
      return GatherStatus::kOk;
    column.valid = pool_.lease(static_cast<size_t>(column.length));
    std::byte* out = column.valid.data();
    unsigned all = 1;
    const bool read = run_guarded([&] {
      for (const Run& run : runs) {
        for (int64_t row = run.first; row < run.first + run.count; ++row) {
          const unsigned valid = run.view->valid(row) ? 1 : 0;
          all &= valid;
          *out++ = static_cast<std::byte>(valid);
        }
      }
    });
    if (!read) return GatherStatus::kVanished;
    column.has_nulls = all == 0;
    if (!column.has_nulls) column.valid = Buffer();
    return GatherStatus::kOk;
  }

  GatherStatus gather_bits(std::span<const Run> runs, Column& column) {
    column.data = pool_.lease(static_cast<size_t>(column.length));
    std::byte* out = column.data.data();
    const bool read = run_guarded([&] {
      for (const Run& run : runs) {
        for (int64_t row = run.first; row < run.first + run.count; ++row)
          *out++ = static_cast<std::byte>(bit_at(run.view->values, row) ? 1 : 0);
      }
    });
    return read ? GatherStatus::kOk : GatherStatus::kVanished;
  }

  GatherStatus gather_fixed(std::span<const Run> runs, Column& column) {
    const auto width = static_cast<size_t>(column.field->byte_width);
    column.data = pool_.lease(bytes_of(column.length, column.field->byte_width));
    std::byte* out = column.data.data();
    const bool read = run_guarded([&] {
      for (const Run& run : runs) {
        const size_t bytes = static_cast<size_t>(run.count) * width;
        if (bytes != 0) std::memcpy(out, run.view->values + static_cast<size_t>(run.first) * width, bytes);
        out += bytes;
      }
    });
    return read ? GatherStatus::kOk : GatherStatus::kVanished;
  }

  // Pass one makes the offsets, checking every range; pass two copies the ranges that pass one found.
  GatherStatus gather_binary(std::span<const Run> runs, Column& column) {
    const auto count = static_cast<size_t>(column.length);
    column.offsets = pool_.lease((count + 1) * sizeof(int64_t));
    auto* const offsets = column.offsets.as<int64_t>();
    std::vector<ByteSpan> pieces(count);
    bool good = true;
    offsets[0] = 0;
    const bool read = run_guarded([&] {
      size_t at = 0;
      for (const Run& run : runs) {
        const bool is_view = run.view->field->layout == Layout::kBinaryView;
        for (int64_t row = run.first; row < run.first + run.count; ++row, ++at) {
          ByteSpan& piece = pieces[at];
          if (!column.is_valid(static_cast<int64_t>(at))) {
            piece = {};
          } else if (is_view) {
            good = good && view_value(*run.view, row, piece);
          } else {
            ValueRange range;
            if (!value_range(*run.view, row, run.view->data_bytes, range)) {
              good = false;
            } else {
              piece = {run.view->values + range.begin, static_cast<size_t>(range.size)};
            }
          }
          if (!good) return;
          if (__builtin_add_overflow(offsets[at], static_cast<int64_t>(piece.size()), &offsets[at + 1])) good = false;
        }
      }
    });
    if (!read) return GatherStatus::kVanished;
    if (!good) return GatherStatus::kBadValue;
    if (leaves_) {
      column.left = std::move(pieces);
      return GatherStatus::kOk;
    }
    column.data = pool_.lease(static_cast<size_t>(offsets[count]));
    std::byte* const out = column.data.data();
    const bool copied = run_guarded([&] {
      for (size_t i = 0; i < count; ++i) {
        if (i + 8 < count) __builtin_prefetch(pieces[i + 8].data());
        if (!pieces[i].empty()) std::memcpy(out + offsets[i], pieces[i].data(), pieces[i].size());
      }
    });
    return copied ? GatherStatus::kOk : GatherStatus::kVanished;
  }

  GatherStatus gather_list(std::span<const Run> runs, Column& column) {
    const auto count = static_cast<size_t>(column.length);
    column.offsets = pool_.lease((count + 1) * sizeof(int64_t));
    auto* const offsets = column.offsets.as<int64_t>();
    std::vector<Run> child_runs(count);
    bool good = true;
    offsets[0] = 0;
    const bool read = run_guarded([&] {
      size_t at = 0;
      for (const Run& run : runs) {
        const ArrayView& child = run.view->children[0];
        for (int64_t row = run.first; row < run.first + run.count; ++row, ++at) {
          ValueRange range;
          if (column.is_valid(static_cast<int64_t>(at)) && !value_range(*run.view, row, child.length, range)) {
            good = false;
            return;
          }
          child_runs[at] = {&child, range.begin, range.size};
          if (__builtin_add_overflow(offsets[at], range.size, &offsets[at + 1])) {
            good = false;
            return;
          }
        }
      }
    });
    if (!read) return GatherStatus::kVanished;
    if (!good) return GatherStatus::kBadValue;
    column.children.resize(1);
    return gather_column(column.field->children[0], child_runs, offsets[count], column.children[0]);
  }

  GatherStatus gather_fixed_list(std::span<const Run> runs, Column& column) {
    const int64_t size = column.field->list_size;
    std::vector<Run> child_runs;
    child_runs.reserve(runs.size());
    for (const Run& run : runs) child_runs.push_back({&run.view->children[0], run.first * size, run.count * size});
    column.children.resize(1);
    return gather_column(column.field->children[0], child_runs, static_cast<int64_t>(bytes_of(column.length, size)),
                         column.children[0]);
  }

  GatherStatus gather_struct(std::span<const Run> runs, Column& column) {
    std::vector<Run> child_runs(runs.begin(), runs.end());
    column.children.resize(column.field->children.size());
    for (size_t child = 0; child < column.children.size(); ++child) {
      for (size_t i = 0; i < runs.size(); ++i) child_runs[i].view = &runs[i].view->children[child];
      const GatherStatus status =
          gather_column(column.field->children[child], child_runs, column.length, column.children[child]);
      if (status != GatherStatus::kOk) return status;
    }
    return GatherStatus::kOk;
  }

  BufferPool& pool_;
  const bool leaves_;
};

}  // namespace

GatherStatus gather(const Field& field, std::span<const Run> runs, BufferPool& pool, Column& column, bool leaves) {
  int64_t total = 0;
  for (const Run& run : runs) total += run.count;
  return Gatherer(pool, leaves).gather_column(field, runs, total, column);
}

std::byte* make_plain_column(const Field& field, int64_t length, BufferPool& pool, Column& column) {
  column.field = &field;
  column.length = length;
  if (field.layout == Layout::kFixed) {
    column.data = pool.lease(static_cast<size_t>(length * field.byte_width));
    return column.data.data();
  }
  column.children.resize(1);
  return make_plain_column(field.children[0], length * field.list_size, pool, column.children[0]);
}

GatherStatus gather_plain(std::span<const std::byte* const> sources, int64_t width, std::byte* out) noexcept {
  const std::byte* const* const from = sources.data();
  const size_t count = sources.size();
  const bool read = run_guarded([&] {
    switch (width) {
      case 1: return copy_rows<1>(from, count, out);
      case 2: return copy_rows<2>(from, count, out);
      case 4: return copy_rows<4>(from, count, out);
      case 8: return copy_rows<8>(from, count, out);
      case 16: return copy_rows<16>(from, count, out);
      case 32: return copy_rows<32>(from, count, out);
      case 64: return copy_rows<64>(from, count, out);
      case 128: return copy_rows<128>(from, count, out);
      default: return copy_wide_rows(from, count, static_cast<size_t>(width), out);
    }
  });
  return read ? GatherStatus::kOk : GatherStatus::kVanished;
}

}  // namespace fastshard::pipeline
