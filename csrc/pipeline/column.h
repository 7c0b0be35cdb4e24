// A gathered column: owned memory in the layout that NumPy wants (one byte per bool and per validity flag, 64-bit
// offsets).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "ipc/schema.h"
#include "pipeline/buffer.h"

namespace fastshard::pipeline {

struct Column {
  const ipc::Field* field = nullptr;
  int64_t length = 0;
  bool has_nulls = false;
  Buffer valid;                // length bytes, 0 or 1; empty where has_nulls is false
  Buffer offsets;              // int64[length + 1], strings, binary and lists; begins with 0
  Buffer lengths;              // int64[length], of lists that `pad` made rows of one length, instead of offsets
  Buffer data;                 // kBits: bytes 0 or 1; kFixed: values; strings and binary: characters
  std::vector<ByteSpan> left;  // [length], strings and binary whose characters were left where they are: no data
  std::vector<Column> children;

  [[nodiscard]] bool is_valid(int64_t row) const noexcept { return !has_nulls || valid.data()[row] != std::byte{0}; }
  [[nodiscard]] int64_t begin(int64_t row) const noexcept { return offsets.as<int64_t>()[row]; }
  [[nodiscard]] int64_t size(int64_t row) const noexcept {
    return offsets.as<int64_t>()[row + 1] - offsets.as<int64_t>()[row];
  }
};

}  // namespace fastshard::pipeline
