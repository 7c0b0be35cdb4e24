#include "ipc/array_view.h"

#include "base/utf8.h"
#include "ipc/fault.h"

namespace fastshard::ipc {
namespace {

// Takes nodes and buffers of one column in pre-order.
class Loader {
 public:
  Loader(const BatchLayout& layout, ByteSpan bytes, int64_t base, size_t column, std::vector<Storage>& storage)
      : layout_(layout),
        bytes_(bytes),
        base_(base),
        storage_(storage),
        node_(layout.first_node[column]),
        buffer_(layout.first_buffer[column]),
        variadic_(layout.first_variadic[column]) {}

  ArrayView load_field(const Field& field) {
    ArrayView view;
    view.field = &field;
    view.length = layout_.nodes[node_++].length;
    if (field.layout == Layout::kNull) return view;
    take_validity(view);
    switch (field.layout) {
      case Layout::kNull: break;
      case Layout::kBits: view.values = sized(view, take(), bytes_for_bits(view.length), "values"); break;
      case Layout::kFixed: view.values = sized(view, take(), product(view, field.byte_width), "values"); break;
      case Layout::kBinary32: take_offsets(view, 4, 1), take_characters(view); break;
      case Layout::kBinary64: take_offsets(view, 8, 1), take_characters(view); break;
      case Layout::kBinaryView: take_views(view); break;
      case Layout::kList32: take_offsets(view, 4, 1), take_child(view); break;
      case Layout::kList64: take_offsets(view, 8, 1), take_child(view); break;
      case Layout::kListView32: take_offsets(view, 4, 0), take_sizes(view, 4), take_child(view); break;
      case Layout::kListView64: take_offsets(view, 8, 0), take_sizes(view, 8), take_child(view); break;
      case Layout::kFixedList: take_child(view), check_child(view, 0, product(view, field.list_size)); break;
      case Layout::kStruct:
        for (size_t i = 0; i < field.children.size(); ++i) {
          view.children.push_back(load_field(field.children[i]));
          check_child(view, i, view.length);
        }
        break;
    }
    return view;
  }

 private:
  ByteSpan take() {
    const BufferExtent& extent = layout_.buffers[buffer_++];
    if (extent.length == 0) return {};
    const ByteSpan stored =
        bytes_.subspan(static_cast<size_t>(extent.offset - base_), static_cast<size_t>(extent.length));
    if (layout_.compression == Compression::kNone) return stored;
    storage_.push_back(decompress(stored, layout_.compression));
    return storage_.back().span();
  }

  // A present validity buffer is used whatever the null count says; an absent one means no nulls.
  void take_validity(ArrayView& view) {
    const ByteSpan bits = take();
    if (bits.empty()) return;
    view.validity = sized(view, bits, bytes_for_bits(view.length), "validity");
  }

  void take_offsets(ArrayView& view, int64_t width, int64_t extra) {
    const ByteSpan offsets = take();
    if (view.length == 0) return;  // the format allows 0 bytes, or one offset
    int64_t count = 0;
    int64_t bytes = 0;
    if (!checked_add(view.length, extra, count) || !checked_multiply(count, width, bytes)) too_long(view);
    view.offsets = sized(view, offsets, bytes, "offsets");
  }

  void take_sizes(ArrayView& view, int64_t width) {
    const ByteSpan sizes = take();
    int64_t bytes = 0;
    if (!checked_multiply(view.length, width, bytes)) too_long(view);
    view.sizes = sized(view, sizes, bytes, "sizes");
  }

  void take_characters(ArrayView& view) {
    const ByteSpan characters = take();
    view.values = characters.data();
    view.data_bytes = static_cast<int64_t>(characters.size());
  }

  void take_views(ArrayView& view) {
    view.values = sized(view, take(), product(view, 16), "views");
    const int64_t count = layout_.variadic_counts[variadic_++];
    for (int64_t i = 0; i < count; ++i) view.view_data.push_back(take());
  }

  void take_child(ArrayView& view) { view.children.push_back(load_field(view.field->children[0])); }

  static void check_child(const ArrayView& view, size_t child, int64_t needed) {
    if (view.children[child].length < needed) {
      fail(Fault::kChildLength, "column '" + view.field->name + "' needs " + std::to_string(needed) +
                                    " values in its child, which has " + std::to_string(view.children[child].length));
    }
  }

  static int64_t product(const ArrayView& view, int64_t width) {
    int64_t bytes = 0;
    if (!checked_multiply(view.length, width, bytes)) too_long(view);
    return bytes;
  }

  [[noreturn]] static void too_long(const ArrayView& view) {
    fail(Fault::kNodeLength,
         "column '" + view.field->name + "' says it has " + std::to_string(view.length) + " values");
  }

  static const std::byte* sized(const ArrayView& view, ByteSpan buffer, int64_t needed, const char* what) {
    if (buffer.size() < static_cast<uint64_t>(needed)) {
      fail(Fault::kBufferSize, "column '" + view.field->name + "': its " + what + " take " + std::to_string(needed) +
                                   " bytes for " + std::to_string(view.length) + " values, the buffer has " +
                                   std::to_string(buffer.size()));
    }
    return buffer.data();
  }

  const BatchLayout& layout_;
  ByteSpan bytes_;
  int64_t base_;
  std::vector<Storage>& storage_;
  size_t node_;
  size_t buffer_;
  size_t variadic_;
};

void check_text(const ArrayView& view, int64_t row, ByteSpan value) {
  if (view.field->is_text() && !is_utf8(value)) {
    fail(Fault::kUtf8, "column '" + view.field->name + "', row " + std::to_string(row) + " of the block: not UTF-8");
  }
}

void check_range(const ArrayView& view, int64_t row, int64_t limit, ValueRange& range) {
  if (!value_range(view, row, limit, range)) {
    fail(Fault::kOffsets, "column '" + view.field->name + "', row " + std::to_string(row) + " of the block: offsets " +
                              std::to_string(range.begin) + " to " + std::to_string(range.begin + range.size) +
                              " do not lie in 0 to " + std::to_string(limit));
  }
}

}  // namespace

LoadedColumn load_column(const BatchLayout& layout, ByteSpan bytes, int64_t base, const Schema& schema, size_t column) {
  LoadedColumn loaded;
  loaded.view = Loader(layout, bytes, base, column, loaded.storage).load_field(schema.fields[column]);
  return loaded;
}

void check_values(const ArrayView& view) {
  switch (view.field->layout) {
    case Layout::kBinary32:
    case Layout::kBinary64:
      for (int64_t row = 0; row < view.length; ++row) {
        ValueRange range;
        check_range(view, row, view.data_bytes, range);
        if (view.valid(row)) check_text(view, row, {view.values + range.begin, static_cast<size_t>(range.size)});
      }
      break;
    case Layout::kBinaryView:
      for (int64_t row = 0; row < view.length; ++row) {
        if (!view.valid(row)) continue;  // a null's view may hold anything
        ByteSpan value;
        if (!view_value(view, row, value)) {
          fail(Fault::kView, "column '" + view.field->name + "', row " + std::to_string(row) +
                                 " of the block: a view outside its data");
        }
        check_text(view, row, value);
      }
      break;
    case Layout::kList32:
    case Layout::kList64:
    case Layout::kListView32:
    case Layout::kListView64:
      for (int64_t row = 0; row < view.length; ++row) {
        ValueRange range;
        check_range(view, row, view.children[0].length, range);
      }
      break;
    default: break;
  }
  for (const ArrayView& child : view.children) check_values(child);
}

}  // namespace fastshard::ipc
