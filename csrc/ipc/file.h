// The outline of an IPC file or stream: schema, and where each record batch lies.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "ipc/message.h"
#include "ipc/schema.h"

namespace fastshard::ipc {

struct BlockExtent {
  int64_t offset = 0;          // of the encapsulated message
  int64_t metadata_bytes = 0;  // to the body
  int64_t body_bytes = 0;
};

enum class FileKind { kAuto, kFile, kStream };

struct Outline {
  FileKind kind = FileKind::kFile;
  Schema schema;
  ByteSpan schema_message;  // encapsulated; points into the file
  std::vector<BlockExtent> blocks;
};

// `kAuto` tells a file by its leading magic. Every block lies inside `file`.
[[nodiscard]] Outline parse_outline(ByteSpan file, FileKind kind);

// A schema message alone, as index.json holds it.
[[nodiscard]] Schema parse_schema_message(ByteSpan encapsulated);

// The record batch at `extent`, checked against it and the schema.
[[nodiscard]] BatchLayout parse_block(ByteSpan file, const BlockExtent& extent, const Schema& schema);

}  // namespace fastshard::ipc
