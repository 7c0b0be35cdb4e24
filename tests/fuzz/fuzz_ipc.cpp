// Any bytes as an Arrow file or stream: an Error, or columns that can be checked and gathered; never a crash.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "base/error.h"
#include "ipc/array_view.h"
#include "ipc/byte_source.h"
#include "ipc/file.h"
#include "pipeline/buffer.h"
#include "pipeline/column.h"
#include "pipeline/gather.h"

namespace {

using fastshard::ByteSpan;
using fastshard::Error;

// Rows that are gathered: enough to go through runs, few enough for many tries a second.
constexpr int64_t kRows = 64;

void read_column(const fastshard::ipc::BatchLayout& layout, ByteSpan body, const fastshard::ipc::Schema& schema,
                 size_t column, fastshard::pipeline::BufferPool& pool) {
  const fastshard::ipc::LoadedColumn loaded = fastshard::ipc::load_column(layout, body, 0, schema, column);
  bool good = true;
  try {
    fastshard::ipc::check_values(loaded.view);
  } catch (const Error&) {
    good = false;
  }
  // What is read in place is gathered without that check, whether it would pass it or not.
  const int64_t rows = std::min(loaded.view.length, kRows);
  std::vector<fastshard::pipeline::Run> runs;
  for (int64_t row = rows; row-- > 0;) fastshard::pipeline::add_row(runs, &loaded.view, row);
  if (rows > 0) runs.push_back({&loaded.view, 0, rows});
  fastshard::pipeline::Column gathered;
  const auto status = fastshard::pipeline::gather(schema.fields[column], runs, pool, gathered);
  if (good && status != fastshard::pipeline::GatherStatus::kOk) __builtin_trap();  // checked, and not to be gathered
}

void read_file(ByteSpan bytes) {
  const fastshard::ipc::SpanSource file(bytes);
  const fastshard::ipc::Outline outline = fastshard::ipc::parse_outline(file, fastshard::ipc::FileKind::kAuto);
  const auto pool = fastshard::pipeline::BufferPool::make(0);
  for (const fastshard::ipc::BlockExtent& extent : outline.blocks) {
    const auto begin = static_cast<size_t>(extent.offset);
    const auto metadata_bytes = static_cast<size_t>(extent.metadata_bytes);
    const std::vector<std::byte> metadata = file.read(begin, metadata_bytes);
    const fastshard::ipc::BatchLayout layout = fastshard::ipc::parse_block(metadata, extent.body_bytes, outline.schema);
    const ByteSpan body = bytes.subspan(begin + metadata_bytes, static_cast<size_t>(extent.body_bytes));
    for (size_t column = 0; column < outline.schema.fields.size(); ++column) {
      try {
        read_column(layout, body, outline.schema, column, *pool);
      } catch (const Error&) {  // the next column may still be read
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of its own, so that AddressSanitizer sees reads beyond it.
  const auto* const first = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> bytes(first, first + size);
  try {
    read_file(bytes);
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
