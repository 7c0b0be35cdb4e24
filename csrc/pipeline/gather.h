// Copies rows of blocks, in any order, into one column. Reads mapped memory only inside fault guards, loads each value
// offset once and checks it where it is used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ipc/array_view.h"
#include "pipeline/column.h"

namespace fastshard::pipeline {

// `count` consecutive rows of a view from `first` on.
struct Run {
  const ipc::ArrayView* view;
  int64_t first;
  int64_t count;
};

enum class GatherStatus {
  kOk,
  kBadValue,  // an offset or view outside its data
  kVanished,  // a fault while reading the mapping
};

// One more row at the end of `runs`: a longer last run, or a new one.
inline void add_row(std::vector<Run>& runs, const ipc::ArrayView* view, int64_t row) {
  if (!runs.empty() && runs.back().view == view && runs.back().first + runs.back().count == row) {
    ++runs.back().count;
  } else {
    runs.push_back({view, row, 1});
  }
}

// The rows of all runs, one run after the other. On a status other than kOk the column is not usable.
// With `leaves` the characters of strings and binary are not copied: Column::left says where they are, and whoever
// copies them does so in a fault guard.
// Throws std::bad_alloc, and Error(kInvalid) where the result would pass 2^63 bytes.
[[nodiscard]] GatherStatus gather(const ipc::Field& field, std::span<const Run> runs, BufferPool& pool, Column& column,
                                  bool leaves = false);

// A column of constant-width rows, its innermost values still to be filled: returns where they go.
[[nodiscard]] std::byte* make_plain_column(const ipc::Field& field, int64_t length, BufferPool& pool, Column& column);

// Rows of constant width: row i of `out` is the `width` bytes at sources[i]. Prefetches ahead of the copies.
[[nodiscard]] GatherStatus gather_plain(std::span<const std::byte* const> sources, int64_t width,
                                        std::byte* out) noexcept;

}  // namespace fastshard::pipeline
