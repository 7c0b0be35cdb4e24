#include "ipc/row_range.h"

#include "ipc/fault.h"

namespace fastshard::ipc {
namespace {

using BytesOf = std::function<ByteSpan(const BufferExtent&)>;

// `count` bits from bit `first` (0 to 7) of `from` on, moved to the beginning of fresh memory.
Storage shifted_bits(const std::byte* from, int64_t first, int64_t count) {
  Storage bits(static_cast<size_t>(bytes_for_bits(count)));
  for (int64_t i = 0; i < bytes_for_bits(count); ++i) {
    auto value = static_cast<unsigned>(from[i]) >> first;
    if (8 * (i + 1) < first + count) value |= static_cast<unsigned>(from[i + 1]) << (8 - first);
    bits.data()[i] = static_cast<std::byte>(value);
  }
  return bits;
}

// Takes nodes and buffers of one column in pre-order, as the loader of whole columns does.
class RowLoader {
 public:
  RowLoader(const BatchLayout& layout, size_t column, const BytesOf& bytes_of, std::vector<Storage>& storage)
      : layout_(layout),
        bytes_of_(bytes_of),
        storage_(storage),
        node_(layout.first_node[column]),
        buffer_(layout.first_buffer[column]) {}

  ArrayView load_field(const Field& field, int64_t first, int64_t count) {
    const int64_t length = layout_.nodes[node_++].length;
    if (length - count < first) {
      fail(Fault::kChildLength, "column '" + field.name + "' has " + std::to_string(length) + " values, " +
                                    std::to_string(count) + " from " + std::to_string(first) + " on are needed");
    }
    ArrayView view;
    view.field = &field;
    view.length = count;
    if (field.layout == Layout::kNull) return view;
    if (layout_.buffers[buffer_].length == 0) {
      ++buffer_;  // no validity: no nulls
    } else {
      view.validity = bits(field, length, first, count, "validity");
    }
    switch (field.layout) {
      case Layout::kBits: view.values = bits(field, length, first, count, "values"); break;
      case Layout::kFixed: view.values = values(field, length, first, count); break;
      case Layout::kFixedList:
        view.children.push_back(load_field(field.children[0], product(field, first, field.list_size),
                                           product(field, count, field.list_size)));
        break;
      case Layout::kStruct:
        for (const Field& child : field.children) view.children.push_back(load_field(child, first, count));
        break;
      default: fail(Fault::kSchemaType, "column '" + field.name + "' has no rows of constant width");
    }
    return view;
  }

 private:
  const std::byte* bits(const Field& field, int64_t length, int64_t first, int64_t count, const char* what) {
    const BufferExtent buffer = sized(field, length, bytes_for_bits(length), what);
    if (count == 0) return nullptr;
    const std::byte* const from = part(buffer, first / 8, bytes_for_bits(first + count) - first / 8);
    if (from == nullptr || first % 8 == 0) return from;
    storage_.push_back(shifted_bits(from, first % 8, count));
    return storage_.back().data();
  }

  const std::byte* values(const Field& field, int64_t length, int64_t first, int64_t count) {
    const int64_t width = field.byte_width;
    const BufferExtent buffer = sized(field, length, product(field, length, width), "values");
    return count * width == 0 ? nullptr : part(buffer, first * width, count * width);
  }

  const std::byte* part(const BufferExtent& buffer, int64_t begin, int64_t size) {
    return bytes_of_({buffer.offset + begin, size}).data();
  }

  BufferExtent sized(const Field& field, int64_t length, int64_t needed, const char* what) {
    const BufferExtent& buffer = layout_.buffers[buffer_++];
    if (buffer.length < needed) {
      fail(Fault::kBufferSize, "column '" + field.name + "': its " + what + " take " + std::to_string(needed) +
                                   " bytes for " + std::to_string(length) + " values, the buffer has " +
                                   std::to_string(buffer.length));
    }
    return buffer;
  }

  static int64_t product(const Field& field, int64_t count, int64_t width) {
    int64_t result = 0;
    if (!checked_multiply(count, width, result)) {
      fail(Fault::kNodeLength, "column '" + field.name + "' says it has " + std::to_string(count) + " values");
    }
    return result;
  }

  const BatchLayout& layout_;
  const BytesOf& bytes_of_;
  std::vector<Storage>& storage_;
  size_t node_;
  size_t buffer_;
};

}  // namespace

int64_t row_bits(const Field& field) noexcept {
  switch (field.layout) {
    case Layout::kNull: return 0;
    case Layout::kBits: return 1;
    case Layout::kFixed: return 8 * int64_t{field.byte_width};
    case Layout::kFixedList: {
      const int64_t one = row_bits(field.children[0]);
      int64_t all = 0;
      return one < 0 || !checked_multiply(one, int64_t{field.list_size}, all) ? -1 : all;
    }
    case Layout::kStruct: {
      int64_t all = 0;
      for (const Field& child : field.children) {
        const int64_t one = row_bits(child);
        if (one < 0 || !checked_add(all, one, all)) return -1;
      }
      return all;
    }
    default: return -1;
  }
}

void append_row_extents(const BatchLayout& layout, const Schema& schema, size_t column, int64_t first, int64_t count,
                        std::vector<BufferExtent>& extents) {
  std::vector<Storage> none;
  const BytesOf collect = [&extents](const BufferExtent& extent) {
    extents.push_back(extent);
    return ByteSpan();
  };
  (void)RowLoader(layout, column, collect, none).load_field(schema.fields[column], first, count);
}

LoadedColumn load_rows(const BatchLayout& layout, const Schema& schema, size_t column, int64_t first, int64_t count,
                       const BytesOf& bytes_of) {
  LoadedColumn loaded;
  loaded.view = RowLoader(layout, column, bytes_of, loaded.storage).load_field(schema.fields[column], first, count);
  return loaded;
}

}  // namespace fastshard::ipc
