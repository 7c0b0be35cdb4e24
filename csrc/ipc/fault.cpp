#include "ipc/fault.h"

#include <array>

namespace fastshard::ipc {
namespace {

struct Named {
  Fault fault;
  const char* name;
};

constexpr std::array kNames{
    Named{Fault::kFileTooShort, "file_too_short"},
    Named{Fault::kFileMagic, "file_magic"},
    Named{Fault::kFooterLength, "footer_length"},
    Named{Fault::kFooterBlock, "footer_block"},
    Named{Fault::kFlatbuffer, "flatbuffer"},
    Named{Fault::kMetadataVersion, "metadata_version"},
    Named{Fault::kSchemaMissing, "schema_missing"},
    Named{Fault::kSchemaDiffers, "schema_differs"},
    Named{Fault::kSchemaType, "schema_type"},
    Named{Fault::kSchemaDepth, "schema_depth"},
    Named{Fault::kSchemaChildren, "schema_children"},
    Named{Fault::kMessageBounds, "message_bounds"},
    Named{Fault::kMessageKind, "message_kind"},
    Named{Fault::kBodyBounds, "body_bounds"},
    Named{Fault::kNodeCount, "node_count"},
    Named{Fault::kNodeLength, "node_length"},
    Named{Fault::kBufferCount, "buffer_count"},
    Named{Fault::kBufferBounds, "buffer_bounds"},
    Named{Fault::kBufferAlignment, "buffer_alignment"},
    Named{Fault::kBufferSize, "buffer_size"},
    Named{Fault::kCompressionKind, "compression_kind"},
    Named{Fault::kCompressedLength, "compressed_length"},
    Named{Fault::kDecompression, "decompression"},
    Named{Fault::kOffsets, "offsets"},
    Named{Fault::kChildLength, "child_length"},
    Named{Fault::kView, "view"},
    Named{Fault::kUtf8, "utf8"},
};

}  // namespace

const char* name_of(Fault fault) noexcept {
  for (const Named& named : kNames) {
    if (named.fault == fault) return named.name;
  }
  return "unknown";
}

std::vector<std::string> fault_codes() {
  std::vector<std::string> codes;
  codes.reserve(kNames.size());
  for (const Named& named : kNames) codes.emplace_back(named.name);
  return codes;
}

void fail(Fault fault, const std::string& what) { throw Error(ErrorKind::kCorrupt, name_of(fault), what); }

}  // namespace fastshard::ipc
