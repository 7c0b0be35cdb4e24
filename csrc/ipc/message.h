// Encapsulated IPC messages: where the metadata and body lie, and what a record batch's metadata says about its
// buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "ipc/schema.h"

namespace fastshard::ipc {

enum class MessageKind : uint8_t { kSchema = 1, kDictionaryBatch = 2, kRecordBatch = 3 };
enum class Compression : uint8_t { kNone, kLz4, kZstd };

struct BufferExtent {
  int64_t offset = 0;  // in the body
  int64_t length = 0;  // in the body, compressed where the batch is
};

struct Node {
  int64_t length = 0;
  int64_t null_count = 0;
};

// A message at the start of `bytes` (which may go on behind it).
struct Message {
  MessageKind kind = MessageKind::kRecordBatch;
  int64_t metadata_bytes = 0;  // marker, length, flatbuffer and padding: the body follows
  int64_t body_bytes = 0;
  ByteSpan flatbuffer;
};

// What tells how long the encapsulated metadata are.
inline constexpr size_t kPrefixBytes = 8;

// Length of the encapsulated metadata that begin with `prefix`, of which there may be fewer than kPrefixBytes; 0 where
// those are too few to tell.
[[nodiscard]] uint64_t encapsulated_bytes(ByteSpan prefix) noexcept;

// Parses the prefix and the Message table. A length of 0 (end of stream) gives metadata_bytes > 0 and an empty
// flatbuffer.
[[nodiscard]] Message parse_message(ByteSpan bytes);

// The table inside a message's header of the given kind; throws kMessageKind if it is of another.
[[nodiscard]] FlatTable message_header(ByteSpan flatbuffer, MessageKind expected);

// Nodes and buffers of one batch in schema pre-order: counts match the schema and every buffer lies inside the body.
struct BatchLayout {
  int64_t rows = 0;
  int64_t body_bytes = 0;
  Compression compression = Compression::kNone;
  std::vector<Node> nodes;
  std::vector<BufferExtent> buffers;
  std::vector<int64_t> variadic_counts;  // of view columns, in pre-order
  std::vector<uint32_t> first_node;      // per top-level column, and the end
  std::vector<uint32_t> first_buffer;    // likewise
  std::vector<uint32_t> first_variadic;  // likewise

  // The bytes of the body that top-level column `column` occupies (docs/format.md section 4): {0, 0} where none.
  [[nodiscard]] BufferExtent column_extent(size_t column) const;
};

[[nodiscard]] BatchLayout parse_batch(ByteSpan flatbuffer, int64_t body_bytes, const Schema& schema);

}  // namespace fastshard::ipc
