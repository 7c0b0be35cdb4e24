// Rows of a column by themselves: where their bytes lie in a block that is not compressed, and an array of them.
//
// Only columns whose rows have a constant width: nulls, bits, fixed-width values, and fixed-size lists and structs of
// such columns. What is said of a block's buffers is validated as `load_column` does.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ipc/array_view.h"
#include "ipc/message.h"
#include "ipc/schema.h"

namespace fastshard::ipc {

// Bits of the values of one row, without validity; -1 where rows have no constant width, or one past any memory.
[[nodiscard]] int64_t row_bits(const Field& field) noexcept;

// Appends the extents of the body that rows first to first + count of a column occupy, one for each buffer that is
// there. 0 <= first, 0 < count, and the column has constant rows. Throws where the block has fewer rows or its buffers
// are too short.
void append_row_extents(const BatchLayout& layout, const Schema& schema, size_t column, int64_t first, int64_t count,
                        std::vector<BufferExtent>& extents);

// The same rows as an array of `count`. `bytes_of` gives the bytes of each of these extents; the view refers to them,
// or to `storage` for bits that began inside of a byte.
[[nodiscard]] LoadedColumn load_rows(const BatchLayout& layout, const Schema& schema, size_t column, int64_t first,
                                     int64_t count, const std::function<ByteSpan(const BufferExtent&)>& bytes_of);

}  // namespace fastshard::ipc
