// The outline of an IPC file or stream: schema, and where each record batch lies.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "ipc/byte_source.h"
#include "ipc/message.h"
#include "ipc/schema.h"

namespace fastshard::ipc {

struct BlockExtent {
  int64_t offset = 0;          // of the encapsulated message
  int64_t metadata_bytes = 0;  // to the body
  int64_t body_bytes = 0;
  bool operator==(const BlockExtent&) const = default;
};

enum class FileKind { kAuto, kFile, kStream };

struct Outline {
  FileKind kind = FileKind::kFile;
  Schema schema;
  std::vector<std::byte> schema_message;  // encapsulated
  std::vector<BlockExtent> blocks;
};

// `kAuto` tells a file by its leading magic. Every block lies inside `file`. Reads metadata alone.
[[nodiscard]] Outline parse_outline(const ByteSource& file, FileKind kind);

// A schema message alone, as index.json holds it.
[[nodiscard]] Schema parse_schema_message(ByteSpan encapsulated);

// The record batch whose encapsulated metadata are `metadata` and whose body has `body_bytes` bytes, checked against
// both and the schema.
[[nodiscard]] BatchLayout parse_block(ByteSpan metadata, int64_t body_bytes, const Schema& schema);

}  // namespace fastshard::ipc
