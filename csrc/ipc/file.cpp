#include "ipc/file.h"

#include <cstring>

#include "ipc/fault.h"

namespace fastshard::ipc {
namespace {

constexpr char kMagic[] = "ARROW1";
constexpr size_t kMagicBytes = 6;
constexpr size_t kLeadBytes = 8;  // magic and padding
constexpr size_t kBlockStruct = 24;

bool has_magic(ByteSpan bytes) {
  return bytes.size() >= kMagicBytes && std::memcmp(bytes.data(), kMagic, kMagicBytes) == 0;
}

[[noreturn]] void refuse_dictionaries() {
  throw Error(
      ErrorKind::kUnsupported, "dictionary",
      "the file holds dictionary batches, which are not read in place; run \"fastshard convert\" on the source");
}

Message schema_message_at(ByteSpan file, size_t offset) {
  const Message message = parse_message(file.subspan(offset));
  if (message.flatbuffer.empty())
    fail(Fault::kSchemaMissing, "there is no schema message at " + std::to_string(offset));
  return message;
}

Outline parse_file(ByteSpan file) {
  if (file.size() < kLeadBytes + kMagicBytes + 4) {
    fail(Fault::kFileTooShort, "an Arrow IPC file has at least 18 bytes, found " + std::to_string(file.size()));
  }
  if (!has_magic(file)) fail(Fault::kFileMagic, "the file does not begin with ARROW1");
  if (!has_magic(file.subspan(file.size() - kMagicBytes))) {
    fail(Fault::kFileMagic, "the file does not end with ARROW1: it was cut short, or is not an Arrow IPC file");
  }
  const size_t footer_end = file.size() - kMagicBytes - 4;
  const auto footer_bytes = load<int32_t>(file.data() + footer_end);
  if (footer_bytes <= 0 || static_cast<size_t>(footer_bytes) > footer_end - kLeadBytes) {
    fail(Fault::kFooterLength, "the footer says it has " + std::to_string(footer_bytes) + " bytes, the file has " +
                                   std::to_string(file.size()));
  }
  const size_t footer_begin = footer_end - static_cast<size_t>(footer_bytes);
  const FlatTable footer = FlatTable::root(file.subspan(footer_begin, static_cast<size_t>(footer_bytes)));
  if (const int16_t version = footer.scalar<int16_t>(0, 0); version != 3 && version != 4) {
    fail(Fault::kMetadataVersion,
         "the footer's metadata version V" + std::to_string(version + 1) + " is neither V4 nor V5");
  }
  const std::optional<FlatTable> schema = footer.table(1);
  if (!schema) fail(Fault::kSchemaMissing, "the footer has no schema");
  if (footer.vector(2, kBlockStruct).size() != 0) refuse_dictionaries();

  Outline outline;
  outline.kind = FileKind::kFile;
  outline.schema = parse_schema(*schema);
  const Message first = schema_message_at(file.first(footer_begin), kLeadBytes);
  const Schema leading = parse_schema(message_header(first.flatbuffer, MessageKind::kSchema));
  if (leading.fields.size() != outline.schema.fields.size()) {
    fail(Fault::kSchemaMissing, "the leading schema and the footer's differ");
  }
  outline.schema_message = file.subspan(kLeadBytes, static_cast<size_t>(first.metadata_bytes));
  const FlatVector blocks = footer.vector(3, kBlockStruct);
  outline.blocks.reserve(blocks.size());
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const std::byte* at = blocks.element(i);
    const BlockExtent block{load<int64_t>(at), load<int32_t>(at + 8), load<int64_t>(at + 16)};
    if (block.offset < 0 || block.metadata_bytes < 0 || block.body_bytes < 0 || block.offset % 8 != 0 ||
        !range_fits(static_cast<uint64_t>(block.offset), static_cast<uint64_t>(block.metadata_bytes), footer_begin) ||
        !range_fits(static_cast<uint64_t>(block.offset + block.metadata_bytes), static_cast<uint64_t>(block.body_bytes),
                    footer_begin)) {
      fail(Fault::kFooterBlock, "block " + std::to_string(i) + " at " + std::to_string(block.offset) + " of " +
                                    std::to_string(block.metadata_bytes) + " + " + std::to_string(block.body_bytes) +
                                    " bytes lies outside the file");
    }
    outline.blocks.push_back(block);
  }
  return outline;
}

Outline parse_stream(ByteSpan file) {
  Outline outline;
  outline.kind = FileKind::kStream;
  const Message first = schema_message_at(file, 0);
  outline.schema = parse_schema(message_header(first.flatbuffer, MessageKind::kSchema));
  outline.schema_message = file.first(static_cast<size_t>(first.metadata_bytes));
  auto offset = static_cast<size_t>(first.metadata_bytes);
  while (offset < file.size()) {  // a stream may end without its end marker
    const Message message = parse_message(file.subspan(offset));
    if (message.flatbuffer.empty()) break;
    if (message.kind == MessageKind::kDictionaryBatch) refuse_dictionaries();
    if (message.kind != MessageKind::kRecordBatch) fail(Fault::kMessageKind, "a second schema in the stream");
    const BlockExtent block{static_cast<int64_t>(offset), message.metadata_bytes, message.body_bytes};
    const auto body = offset + static_cast<size_t>(message.metadata_bytes);
    if (!range_fits(body, static_cast<uint64_t>(message.body_bytes), file.size())) {
      fail(Fault::kBodyBounds, "the body at " + std::to_string(body) + " of " + std::to_string(message.body_bytes) +
                                   " bytes goes beyond the stream's end at " + std::to_string(file.size()));
    }
    outline.blocks.push_back(block);
    offset = body + static_cast<size_t>(message.body_bytes);
  }
  return outline;
}

}  // namespace

Outline parse_outline(ByteSpan file, FileKind kind) {
  if (kind == FileKind::kAuto) kind = has_magic(file) ? FileKind::kFile : FileKind::kStream;
  return kind == FileKind::kFile ? parse_file(file) : parse_stream(file);
}

Schema parse_schema_message(ByteSpan encapsulated) {
  const Message message = parse_message(encapsulated);
  if (message.flatbuffer.empty()) fail(Fault::kSchemaMissing, "the schema message is empty");
  return parse_schema(message_header(message.flatbuffer, MessageKind::kSchema));
}

BatchLayout parse_block(ByteSpan file, const BlockExtent& extent, const Schema& schema) {
  if (extent.offset < 0 || extent.metadata_bytes < 0 || extent.body_bytes < 0 ||
      !range_fits(static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.metadata_bytes), file.size()) ||
      !range_fits(static_cast<uint64_t>(extent.offset) + static_cast<uint64_t>(extent.metadata_bytes),
                  static_cast<uint64_t>(extent.body_bytes), file.size())) {
    fail(Fault::kMessageBounds, "a block at " + std::to_string(extent.offset) + " of " +
                                    std::to_string(extent.metadata_bytes) + " + " + std::to_string(extent.body_bytes) +
                                    " bytes lies outside the file of " + std::to_string(file.size()));
  }
  const Message message =
      parse_message(file.subspan(static_cast<size_t>(extent.offset), static_cast<size_t>(extent.metadata_bytes)));
  if (message.flatbuffer.empty())
    fail(Fault::kMessageKind, "an end-of-stream marker where a record batch was expected");
  if (message.metadata_bytes > extent.metadata_bytes) {
    fail(Fault::kMessageBounds,
         "a block's metadata is longer than the " + std::to_string(extent.metadata_bytes) + " bytes it is given");
  }
  if (message.body_bytes > extent.body_bytes) {
    fail(Fault::kBodyBounds, "a block's body of " + std::to_string(message.body_bytes) + " bytes is longer than the " +
                                 std::to_string(extent.body_bytes) + " bytes it is given");
  }
  return parse_batch(message.flatbuffer, extent.body_bytes, schema);
}

}  // namespace fastshard::ipc
