#include "ipc/file.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

// The start of `file`, up to `length` bytes of it.
std::vector<std::byte> head(const ByteSource& file, uint64_t length) {
  return file.read(0, std::min(length, file.size()));
}

[[noreturn]] void refuse_dictionaries() {
  throw Error(
      ErrorKind::kUnsupported, "dictionary",
      "the file holds dictionary batches, which are not read in place; run \"fastshard convert\" on the source");
}

// Files that are often taken for Arrow's.
void refuse_strangers(ByteSpan lead) {
  const auto begins_with = [&](const char* magic) { return std::memcmp(lead.data(), magic, 4) == 0; };
  if (lead.size() < 4) return;
  for (const auto& [magic, what] : {std::pair("PAR1", "a Parquet file"), std::pair("FEA1", "a Feather V1 file")}) {
    if (begins_with(magic)) {
      throw Error(ErrorKind::kUnsupported, "not_arrow",
                  std::string("it is ") + what + ", not Arrow IPC; run \"fastshard convert\" on it");
    }
  }
}

// The encapsulated metadata at `offset`, as far as they lie below `end`.
std::vector<std::byte> metadata_at(const ByteSource& file, uint64_t offset, uint64_t end) {
  const std::vector<std::byte> prefix = file.read(offset, std::min<uint64_t>(kPrefixBytes, end - offset));
  const uint64_t length = encapsulated_bytes(prefix);
  return length <= prefix.size() ? prefix : file.read(offset, std::min(length, end - offset));
}

Message schema_message(ByteSpan metadata, uint64_t offset) {
  const Message message = parse_message(metadata);
  if (message.flatbuffer.empty())
    fail(Fault::kSchemaMissing, "there is no schema message at " + std::to_string(offset));
  return message;
}

// The leading schema is what an index keeps, the footer's is what most readers use.
void compare_schemas(const Schema& leading, const Schema& footer) {
  if (leading.fields.size() != footer.fields.size()) {
    fail(Fault::kSchemaDiffers, "the leading schema has " + std::to_string(leading.fields.size()) +
                                    " columns, the footer's " + std::to_string(footer.fields.size()));
  }
  for (size_t i = 0; i < leading.fields.size(); ++i) {
    const Field& first = leading.fields[i];
    const Field& second = footer.fields[i];
    if (first.name != second.name || !first.same_type(second)) {
      fail(Fault::kSchemaDiffers, "column " + std::to_string(i) + " is '" + first.name + "' " + first.type_name() +
                                      " in the leading schema and '" + second.name + "' " + second.type_name() +
                                      " in the footer's");
    }
  }
}

Outline parse_file(const ByteSource& file) {
  if (file.size() < kLeadBytes + kMagicBytes + 4) {
    fail(Fault::kFileTooShort, "an Arrow IPC file has at least 18 bytes, found " + std::to_string(file.size()));
  }
  if (!has_magic(head(file, kLeadBytes))) fail(Fault::kFileMagic, "the file does not begin with ARROW1");
  const uint64_t footer_end = file.size() - kMagicBytes - 4;
  const std::vector<std::byte> tail = file.read(footer_end, kMagicBytes + 4);
  if (!has_magic(ByteSpan(tail).subspan(4))) {
    fail(Fault::kFileMagic, "the file does not end with ARROW1: it was cut short, or is not an Arrow IPC file");
  }
  const auto footer_bytes = load<int32_t>(tail.data());
  if (footer_bytes <= 0 || static_cast<uint64_t>(footer_bytes) > footer_end - kLeadBytes) {
    fail(Fault::kFooterLength, "the footer says it has " + std::to_string(footer_bytes) + " bytes, the file has " +
                                   std::to_string(file.size()));
  }
  const uint64_t footer_begin = footer_end - static_cast<uint64_t>(footer_bytes);
  const std::vector<std::byte> footer_copy = file.read(footer_begin, static_cast<uint64_t>(footer_bytes));
  const FlatTable footer = FlatTable::root(footer_copy);
  if (const int16_t version = footer.scalar<int16_t>(0, 0); version != 3 && version != 4) {
    fail(Fault::kMetadataVersion,
         "the footer's metadata version V" + std::to_string(version + 1) + " is neither V4 nor V5");
  }
  const std::optional<FlatTable> schema = footer.table(1);
  if (!schema) fail(Fault::kSchemaMissing, "the footer has no schema");

  Outline outline;
  outline.kind = FileKind::kFile;
  outline.schema = parse_schema(*schema);  // names the column that is dictionary-encoded
  if (footer.vector(2, kBlockStruct).size() != 0) refuse_dictionaries();
  outline.schema_message = metadata_at(file, kLeadBytes, footer_begin);
  const Message first = schema_message(outline.schema_message, kLeadBytes);
  compare_schemas(parse_schema(message_header(first.flatbuffer, MessageKind::kSchema)), outline.schema);
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

Outline parse_stream(const ByteSource& file) {
  Outline outline;
  outline.kind = FileKind::kStream;
  outline.schema_message = metadata_at(file, 0, file.size());
  const Message first = schema_message(outline.schema_message, 0);
  outline.schema = parse_schema(message_header(first.flatbuffer, MessageKind::kSchema));
  auto offset = static_cast<uint64_t>(first.metadata_bytes);
  while (offset < file.size()) {  // a stream may end without its end marker
    const std::vector<std::byte> metadata = metadata_at(file, offset, file.size());
    const Message message = parse_message(metadata);
    if (message.flatbuffer.empty()) break;
    if (message.kind == MessageKind::kDictionaryBatch) refuse_dictionaries();
    if (message.kind != MessageKind::kRecordBatch) fail(Fault::kMessageKind, "a second schema in the stream");
    const uint64_t body = offset + static_cast<uint64_t>(message.metadata_bytes);
    if (!range_fits(body, static_cast<uint64_t>(message.body_bytes), file.size())) {
      fail(Fault::kBodyBounds, "the body at " + std::to_string(body) + " of " + std::to_string(message.body_bytes) +
                                   " bytes goes beyond the stream's end at " + std::to_string(file.size()));
    }
    outline.blocks.push_back({static_cast<int64_t>(offset), message.metadata_bytes, message.body_bytes});
    offset = body + static_cast<uint64_t>(message.body_bytes);
  }
  return outline;
}

}  // namespace

Outline parse_outline(const ByteSource& file, FileKind kind) {
  const std::vector<std::byte> lead = head(file, kLeadBytes);
  refuse_strangers(lead);
  if (kind == FileKind::kAuto) kind = has_magic(lead) ? FileKind::kFile : FileKind::kStream;
  return kind == FileKind::kFile ? parse_file(file) : parse_stream(file);
}

Schema parse_schema_message(ByteSpan encapsulated) {
  const Message message = schema_message(encapsulated, 0);
  return parse_schema(message_header(message.flatbuffer, MessageKind::kSchema));
}

BatchLayout parse_block(ByteSpan metadata, int64_t body_bytes, const Schema& schema) {
  const Message message = parse_message(metadata);
  if (message.flatbuffer.empty())
    fail(Fault::kMessageKind, "an end-of-stream marker where a record batch was expected");
  if (message.body_bytes > body_bytes) {
    fail(Fault::kBodyBounds, "a body of " + std::to_string(message.body_bytes) + " bytes, which has " +
                                 std::to_string(body_bytes) + " bytes of room");
  }
  return parse_batch(message.flatbuffer, body_bytes, schema);
}

}  // namespace fastshard::ipc
