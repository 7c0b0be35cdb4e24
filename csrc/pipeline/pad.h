// Ragged columns as rows of one length.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/column.h"
#include "pipeline/tables.h"

namespace fastshard::pipeline {

struct Padding {
  int64_t length = -1;               // of each row; negative: the column stays as it is
  bool truncates = false;            // longer lists lose their end; else they are an error
  std::array<std::byte, 8> value{};  // one element, in the column's width
};

// Makes lists of fixed-width values or bools, `columns[i]` where paddings[i] asks for it, rows of paddings[i].length
// values: `lengths` says how many of each row are the list's, the child has length x rows values, `offsets` is empty.
// A null list is a row without values of its own. `ids` names the samples in messages.
// Throws Error(kInvalid) at the first list that is too long, and std::bad_alloc.
void pad(std::span<Column> columns, std::span<const Padding> paddings, std::span<const int64_t> ids,
         const ShardTable& table, BufferPool& pool);

}  // namespace fastshard::pipeline
