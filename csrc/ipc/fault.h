// The ways in which bytes can break the format: one code each, and for each code one hostile file in the tests.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace fastshard::ipc {

enum class Fault {
  kFileTooShort,
  kFileMagic,
  kFooterLength,
  kFooterBlock,
  kFlatbuffer,
  kMetadataVersion,
  kSchemaMissing,
  kSchemaDiffers,
  kSchemaType,
  kSchemaDepth,
  kSchemaChildren,
  kMessageBounds,
  kMessageKind,
  kBodyBounds,
  kNodeCount,
  kNodeLength,
  kBufferCount,
  kBufferBounds,
  kBufferAlignment,
  kBufferSize,
  kCompressionKind,
  kCompressedLength,
  kDecompression,
  kOffsets,
  kChildLength,
  kView,
  kUtf8,
};

[[nodiscard]] const char* name_of(Fault fault) noexcept;
[[nodiscard]] std::vector<std::string> fault_codes();

// Throws Error(kCorrupt) with the fault's name as its code.
[[noreturn]] void fail(Fault fault, const std::string& what);

}  // namespace fastshard::ipc
