// Joining and permuting gathered columns, for takes that had to be read in parts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/column.h"

namespace fastshard::pipeline {

// Columns of the same field (at least one), one after the other.
[[nodiscard]] Column concatenate(std::vector<Column> parts, BufferPool& pool);

// Row i of the result is row order[i].
[[nodiscard]] Column reorder(const Column& column, std::span<const int64_t> order, BufferPool& pool);

}  // namespace fastshard::pipeline
