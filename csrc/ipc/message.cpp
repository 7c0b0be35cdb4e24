#include "ipc/message.h"

#include <algorithm>
#include <cctype>

#include "ipc/fault.h"

namespace fastshard::ipc {
namespace {

constexpr uint32_t kContinuation = 0xFFFFFFFFU;
constexpr int16_t kMetadataV4 = 3;
constexpr int16_t kMetadataV5 = 4;

// Walks the schema in pre-order and lays out which nodes and buffers belong to which column.
class Walker {
 public:
  Walker(BatchLayout& layout, const FlatVector& counts) : layout_(layout), counts_(counts) {}

  void column(const Field& field) {
    layout_.first_node.push_back(nodes_);
    layout_.first_buffer.push_back(buffers_);
    layout_.first_variadic.push_back(static_cast<uint32_t>(layout_.variadic_counts.size()));
    visit(field);
  }
  void end() {
    layout_.first_node.push_back(nodes_);
    layout_.first_buffer.push_back(buffers_);
    layout_.first_variadic.push_back(static_cast<uint32_t>(layout_.variadic_counts.size()));
  }
  [[nodiscard]] uint32_t nodes() const noexcept { return nodes_; }
  [[nodiscard]] uint32_t buffers() const noexcept { return buffers_; }

 private:
  void visit(const Field& field) {
    ++nodes_;
    switch (field.layout) {
      case Layout::kNull: break;
      case Layout::kBits:
      case Layout::kFixed:
      case Layout::kList32:
      case Layout::kList64: buffers_ += 2; break;
      case Layout::kBinary32:
      case Layout::kBinary64:
      case Layout::kListView32:
      case Layout::kListView64: buffers_ += 3; break;
      case Layout::kFixedList:
      case Layout::kStruct: buffers_ += 1; break;
      case Layout::kBinaryView: {
        const auto index = static_cast<uint32_t>(layout_.variadic_counts.size());
        if (index >= counts_.size())
          fail(Fault::kBufferCount, "record batch: a view column has no count of data buffers");
        const auto count = load<int64_t>(counts_.element(index));
        if (count < 0 || count > (1 << 30))
          fail(Fault::kBufferCount, "record batch: an impossible count of data buffers");
        layout_.variadic_counts.push_back(count);
        buffers_ += 2 + static_cast<uint32_t>(count);
        if (buffers_ > (1U << 30)) fail(Fault::kBufferCount, "record batch: an impossible count of buffers");
        break;
      }
    }
    for (const Field& child : field.children) visit(child);
  }

  BatchLayout& layout_;
  const FlatVector& counts_;
  uint32_t nodes_ = 0;
  uint32_t buffers_ = 0;
};

// Arrow 0.17, the first with compression, named the codec in the custom metadata of a V4 message.
Compression parse_early_compression(const FlatTable& message) {
  if (message.scalar<int16_t>(0, 0) != kMetadataV4) return Compression::kNone;
  const FlatVector metadata = message.vector(4, 4);
  for (uint32_t i = 0; i < metadata.size(); ++i) {
    const FlatTable pair = metadata.table(i);
    if (pair.string(0) != "ARROW:experimental_compression") continue;
    std::string codec(pair.string(1));
    std::transform(codec.begin(), codec.end(), codec.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    if (codec == "zstd") return Compression::kZstd;
    if (codec == "lz4" || codec == "lz4_frame") return Compression::kLz4;
    fail(Fault::kCompressionKind, "record batch: compression codec '" + codec.substr(0, 32) + "' is not known");
  }
  return Compression::kNone;
}

Compression parse_compression(const FlatTable& message, const FlatTable& batch) {
  const std::optional<FlatTable> compression = batch.table(3);
  if (!compression) return parse_early_compression(message);
  const int8_t codec = compression->scalar<int8_t>(0, 0);
  const int8_t method = compression->scalar<int8_t>(1, 0);
  if (method != 0 || codec < 0 || codec > 1) {
    fail(Fault::kCompressionKind, "record batch: compression codec " + std::to_string(codec) + ", method " +
                                      std::to_string(method) + " is not known");
  }
  return codec == 0 ? Compression::kLz4 : Compression::kZstd;
}

void check_version(const FlatTable& message) {
  const int16_t version = message.scalar<int16_t>(0, 0);
  if (version != kMetadataV4 && version != kMetadataV5) {
    fail(Fault::kMetadataVersion, "metadata version V" + std::to_string(version + 1) + " is neither V4 nor V5");
  }
}

}  // namespace

uint64_t encapsulated_bytes(ByteSpan prefix) noexcept {
  if (prefix.size() < 4) return 0;
  const uint32_t length = load<uint32_t>(prefix.data());
  if (length != kContinuation) return 4 + uint64_t{length};
  return prefix.size() < 8 ? 0 : 8 + uint64_t{load<uint32_t>(prefix.data() + 4)};
}

Message parse_message(ByteSpan bytes) {
  const uint64_t whole = encapsulated_bytes(bytes);
  if (whole == 0) fail(Fault::kMessageBounds, "a message ends after " + std::to_string(bytes.size()) + " bytes");
  const size_t prefix = load<uint32_t>(bytes.data()) == kContinuation ? 8 : 4;
  Message message;
  message.metadata_bytes = static_cast<int64_t>(whole);
  if (whole == prefix) return message;
  const uint64_t length = whole - prefix;
  if (whole > bytes.size()) {
    fail(Fault::kMessageBounds, "a message of " + std::to_string(length) + " bytes of metadata in " +
                                    std::to_string(bytes.size() - prefix) + " bytes");
  }
  message.flatbuffer = bytes.subspan(prefix, length);
  const FlatTable table = FlatTable::root(message.flatbuffer);
  check_version(table);
  const uint8_t kind = table.scalar<uint8_t>(1, 0);
  if (kind < 1 || kind > 3) fail(Fault::kMessageKind, "message kind " + std::to_string(kind) + " is not known");
  message.kind = static_cast<MessageKind>(kind);
  message.body_bytes = table.scalar<int64_t>(3, 0);
  if (message.body_bytes < 0) fail(Fault::kBodyBounds, "a message says its body has a negative length");
  return message;
}

FlatTable message_header(ByteSpan flatbuffer, MessageKind expected) {
  const FlatTable message = FlatTable::root(flatbuffer);
  const uint8_t kind = message.scalar<uint8_t>(1, 0);
  const std::optional<FlatTable> header = message.table(2);
  if (kind != static_cast<uint8_t>(expected) || !header) {
    fail(Fault::kMessageKind, "found a message of kind " + std::to_string(kind) + " where kind " +
                                  std::to_string(static_cast<int>(expected)) + " was expected");
  }
  return *header;
}

BufferExtent BatchLayout::column_extent(size_t column) const {
  int64_t begin = 0;
  int64_t end = 0;
  for (uint32_t i = first_buffer[column]; i < first_buffer[column + 1]; ++i) {
    const BufferExtent& buffer = buffers[i];
    if (buffer.length == 0) continue;
    const int64_t buffer_end = buffer.offset + buffer.length;
    begin = end == 0 ? buffer.offset : std::min(begin, buffer.offset);
    end = std::max(end, buffer_end);
  }
  return {begin, end - begin};
}

BatchLayout parse_batch(ByteSpan flatbuffer, int64_t body_bytes, const Schema& schema) {
  const FlatTable batch = message_header(flatbuffer, MessageKind::kRecordBatch);
  BatchLayout layout;
  layout.body_bytes = body_bytes;
  layout.rows = batch.scalar<int64_t>(0, 0);
  if (layout.rows < 0) fail(Fault::kNodeLength, "record batch: " + std::to_string(layout.rows) + " rows");
  layout.compression = parse_compression(FlatTable::root(flatbuffer), batch);

  const FlatVector counts = batch.vector(4, 8);
  Walker walker(layout, counts);
  for (const Field& field : schema.fields) walker.column(field);
  walker.end();

  const FlatVector nodes = batch.vector(1, 16);
  if (nodes.size() != walker.nodes()) {
    fail(Fault::kNodeCount, "record batch: " + std::to_string(nodes.size()) + " field nodes, the schema has " +
                                std::to_string(walker.nodes()));
  }
  const FlatVector buffers = batch.vector(2, 16);
  if (buffers.size() != walker.buffers()) {
    fail(Fault::kBufferCount, "record batch: " + std::to_string(buffers.size()) + " buffers, the schema needs " +
                                  std::to_string(walker.buffers()));
  }
  layout.nodes.resize(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    Node& node = layout.nodes[i];
    node.length = load<int64_t>(nodes.element(i));
    node.null_count = load<int64_t>(nodes.element(i) + 8);
    if (node.length < 0 || node.null_count < 0 || node.null_count > node.length) {
      fail(Fault::kNodeLength, "record batch: node " + std::to_string(i) + " has length " +
                                   std::to_string(node.length) + " and " + std::to_string(node.null_count) + " nulls");
    }
  }
  layout.buffers.resize(buffers.size());
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    BufferExtent& buffer = layout.buffers[i];
    buffer.offset = load<int64_t>(buffers.element(i));
    buffer.length = load<int64_t>(buffers.element(i) + 8);
    if (buffer.offset < 0 || buffer.length < 0 ||
        !range_fits(static_cast<uint64_t>(buffer.offset), static_cast<uint64_t>(buffer.length),
                    static_cast<uint64_t>(body_bytes))) {
      fail(Fault::kBufferBounds, "record batch: buffer " + std::to_string(i) + " at " + std::to_string(buffer.offset) +
                                     " of " + std::to_string(buffer.length) + " bytes lies outside the body of " +
                                     std::to_string(body_bytes));
    }
    if (buffer.length != 0 && buffer.offset % 8 != 0) {
      fail(Fault::kBufferAlignment, "record batch: buffer " + std::to_string(i) + " at " +
                                        std::to_string(buffer.offset) + " is not at a multiple of 8");
    }
  }
  for (size_t column = 0; column < schema.fields.size(); ++column) {
    const Node& node = layout.nodes[layout.first_node[column]];
    if (node.length != layout.rows) {
      fail(Fault::kNodeLength, "record batch: column '" + schema.fields[column].name + "' has " +
                                   std::to_string(node.length) + " rows, the batch " + std::to_string(layout.rows));
    }
  }
  return layout;
}

}  // namespace fastshard::ipc
