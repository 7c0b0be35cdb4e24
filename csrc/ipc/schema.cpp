#include "ipc/schema.h"

#include <span>
#include <string_view>

#include "base/utf8.h"
#include "ipc/fault.h"

namespace fastshard::ipc {
namespace {

constexpr int kMaxDepth = 64;
// Tables of a flatbuffer may be shared, so a small message can describe a schema without end.
constexpr int64_t kMaxFields = 1 << 20;
constexpr int64_t kMaxText = 64 << 20;  // bytes of names and metadata

// Type ids of the `Type` union in Arrow's Schema.fbs.
enum FlatType : uint8_t {
  kFlatNull = 1,
  kFlatInt,
  kFlatFloatingPoint,
  kFlatBinary,
  kFlatUtf8,
  kFlatBool,
  kFlatDecimal,
  kFlatDate,
  kFlatTime,
  kFlatTimestamp,
  kFlatInterval,
  kFlatList,
  kFlatStruct,
  kFlatUnion,
  kFlatFixedSizeBinary,
  kFlatFixedSizeList,
  kFlatMap,
  kFlatDuration,
  kFlatLargeBinary,
  kFlatLargeUtf8,
  kFlatLargeList,
  kFlatRunEndEncoded,
  kFlatBinaryView,
  kFlatUtf8View,
  kFlatListView,
  kFlatLargeListView,
};

// Where a field is, for messages: names from the top-level column down.
struct Path {
  const Path* parent;
  std::string_view name;

  [[nodiscard]] std::string text() const {
    constexpr size_t kShown = 200;
    const std::string own(name.substr(0, kShown));
    return parent == nullptr ? own : parent->text() + "." + own;
  }
};

[[noreturn]] void refuse(const Path& path, const char* what) {
  throw Error(ErrorKind::kUnsupported, "unsupported_type",
              "column '" + path.text() + "' is " + what +
                  ", which is not read in place; run \"fastshard convert\" on the source");
}

[[noreturn]] void bad_type(const Path& path, const std::string& what) {
  fail(Fault::kSchemaType, "schema: column '" + path.text() + "': " + what);
}

const char* time_unit(const Path& path, int16_t unit) {
  switch (unit) {
    case 0: return "s";
    case 1: return "ms";
    case 2: return "us";
    case 3: return "ns";
    default: bad_type(path, "time unit " + std::to_string(unit) + " is not known");
  }
}

void set_fixed(Field& field, Type type, int32_t width) {
  field.type = type;
  field.layout = Layout::kFixed;
  field.byte_width = width;
}

void set(Field& field, Type type, Layout layout) {
  field.type = type;
  field.layout = layout;
}

void parse_int(Field& field, const FlatTable& type, const Path& path) {
  const int32_t bits = type.scalar<int32_t>(0, 0);
  const bool is_signed = type.scalar<uint8_t>(1, 0) != 0;
  switch (bits) {
    case 8: return set_fixed(field, is_signed ? Type::kInt8 : Type::kUInt8, 1);
    case 16: return set_fixed(field, is_signed ? Type::kInt16 : Type::kUInt16, 2);
    case 32: return set_fixed(field, is_signed ? Type::kInt32 : Type::kUInt32, 4);
    case 64: return set_fixed(field, is_signed ? Type::kInt64 : Type::kUInt64, 8);
    default: bad_type(path, "an integer of " + std::to_string(bits) + " bits is not known");
  }
}

void parse_float(Field& field, const FlatTable& type, const Path& path) {
  switch (const int16_t precision = type.scalar<int16_t>(0, 0); precision) {
    case 0: return set_fixed(field, Type::kHalf, 2);
    case 1: return set_fixed(field, Type::kFloat, 4);
    case 2: return set_fixed(field, Type::kDouble, 8);
    default: bad_type(path, "floating-point precision " + std::to_string(precision) + " is not known");
  }
}

void parse_decimal(Field& field, const FlatTable& type, const Path& path) {
  const int32_t bits = type.scalar<int32_t>(2, 128);
  if (bits != 32 && bits != 64 && bits != 128 && bits != 256) {
    bad_type(path, "a decimal of " + std::to_string(bits) + " bits is not known");
  }
  set_fixed(field, Type::kDecimal, bits / 8);
  field.precision = type.scalar<int32_t>(0, 0);
  field.scale = type.scalar<int32_t>(1, 0);
  const int32_t digits = bits == 32 ? 9 : bits == 64 ? 18 : bits == 128 ? 38 : 76;
  if (field.precision < 1 || field.precision > digits) {
    bad_type(path, "a decimal of " + std::to_string(bits) + " bits has 1 to " + std::to_string(digits) +
                       " digits, not " + std::to_string(field.precision));
  }
}

void parse_time(Field& field, const FlatTable& type, const Path& path) {
  field.unit = time_unit(path, type.scalar<int16_t>(0, 1));
  const int32_t bits = type.scalar<int32_t>(1, 32);
  const bool is_coarse = field.unit == "s" || field.unit == "ms";
  if (bits != (is_coarse ? 32 : 64)) {
    bad_type(path, "a time in " + field.unit + " of " + std::to_string(bits) + " bits is not known");
  }
  set_fixed(field, bits == 32 ? Type::kTime32 : Type::kTime64, bits / 8);
}

void parse_interval(Field& field, const FlatTable& type, const Path& path) {
  switch (const int16_t unit = type.scalar<int16_t>(0, 0); unit) {
    case 0: return set_fixed(field, Type::kIntervalMonths, 4);
    case 1: return set_fixed(field, Type::kIntervalDayTime, 8);
    case 2: return set_fixed(field, Type::kIntervalMonthDayNano, 16);
    default: bad_type(path, "interval unit " + std::to_string(unit) + " is not known");
  }
}

void parse_type(Field& field, uint8_t id, const FlatTable& type, const Path& path) {
  switch (id) {
    case kFlatNull: return set(field, Type::kNull, Layout::kNull);
    case kFlatInt: return parse_int(field, type, path);
    case kFlatFloatingPoint: return parse_float(field, type, path);
    case kFlatBinary: return set(field, Type::kBinary, Layout::kBinary32);
    case kFlatUtf8: return set(field, Type::kUtf8, Layout::kBinary32);
    case kFlatBool: return set(field, Type::kBool, Layout::kBits);
    case kFlatDecimal: return parse_decimal(field, type, path);
    case kFlatDate: {
      const bool days = type.scalar<int16_t>(0, 1) == 0;
      field.unit = days ? "D" : "ms";
      return set_fixed(field, days ? Type::kDate32 : Type::kDate64, days ? 4 : 8);
    }
    case kFlatTime: return parse_time(field, type, path);
    case kFlatTimestamp:
      field.unit = time_unit(path, type.scalar<int16_t>(0, 0));
      return set_fixed(field, Type::kTimestamp, 8);
    case kFlatInterval: return parse_interval(field, type, path);
    case kFlatList: return set(field, Type::kList, Layout::kList32);
    case kFlatStruct: return set(field, Type::kStruct, Layout::kStruct);
    case kFlatUnion: refuse(path, "a union");
    case kFlatFixedSizeBinary: {
      const int32_t width = type.scalar<int32_t>(0, 0);
      if (width < 0) bad_type(path, "a negative byte width");
      return set_fixed(field, Type::kFixedBinary, width);
    }
    case kFlatFixedSizeList:
      field.list_size = type.scalar<int32_t>(0, 0);
      if (field.list_size < 0) bad_type(path, "a negative list size");
      return set(field, Type::kFixedList, Layout::kFixedList);
    case kFlatMap: return set(field, Type::kMap, Layout::kList32);
    case kFlatDuration:
      field.unit = time_unit(path, type.scalar<int16_t>(0, 1));
      return set_fixed(field, Type::kDuration, 8);
    case kFlatLargeBinary: return set(field, Type::kLargeBinary, Layout::kBinary64);
    case kFlatLargeUtf8: return set(field, Type::kLargeUtf8, Layout::kBinary64);
    case kFlatLargeList: return set(field, Type::kLargeList, Layout::kList64);
    case kFlatRunEndEncoded: refuse(path, "run-end encoded");
    case kFlatBinaryView: return set(field, Type::kBinaryView, Layout::kBinaryView);
    case kFlatUtf8View: return set(field, Type::kUtf8View, Layout::kBinaryView);
    case kFlatListView: return set(field, Type::kListView, Layout::kListView32);
    case kFlatLargeListView: return set(field, Type::kLargeListView, Layout::kListView64);
    default: bad_type(path, "type id " + std::to_string(id) + " is not known");
  }
}

size_t children_of(Layout layout) {
  switch (layout) {
    case Layout::kList32:
    case Layout::kList64:
    case Layout::kListView32:
    case Layout::kListView64:
    case Layout::kFixedList: return 1;
    default: return 0;
  }
}

void check_children(const Field& field, const Path& path) {
  if (field.layout == Layout::kStruct) return;
  const size_t expected = children_of(field.layout);
  if (field.children.size() != expected) {
    fail(Fault::kSchemaChildren, "schema: column '" + path.text() + "' of type " + name_of(field.type) + " has " +
                                     std::to_string(field.children.size()) + " children, not " +
                                     std::to_string(expected));
  }
  if (field.type == Type::kMap && (field.children[0].type != Type::kStruct || field.children[0].children.size() != 2)) {
    fail(Fault::kSchemaChildren,
         "schema: column '" + path.text() + "' is a map whose entries are not a struct of key and value");
  }
}

class SchemaParser {
 public:
  Schema parse(const FlatVector& fields) {
    Schema parsed;
    take_fields(fields.size());
    parsed.fields.reserve(fields.size());
    for (uint32_t i = 0; i < fields.size(); ++i) parsed.fields.push_back(field(fields.table(i), nullptr, 0));
    return parsed;
  }

 private:
  Field field(const FlatTable& table, const Path* parent, int depth) {
    Field field;
    field.name = text(table.string(0));
    const Path path{parent, field.name};
    if (depth > kMaxDepth) {
      fail(Fault::kSchemaDepth,
           "schema: column '" + path.text() + "' is nested deeper than " + std::to_string(kMaxDepth));
    }
    field.nullable = table.scalar<uint8_t>(1, 0) != 0;
    if (table.has(4)) refuse(path, "dictionary-encoded");
    const std::optional<FlatTable> type = table.table(3);
    if (!type) bad_type(path, "it has no type");
    parse_type(field, table.scalar<uint8_t>(2, 0), *type, path);
    const FlatVector children = table.vector(5, 4);
    take_fields(children.size());
    field.children.reserve(children.size());
    for (uint32_t i = 0; i < children.size(); ++i)
      field.children.push_back(this->field(children.table(i), &path, depth + 1));
    check_children(field, path);
    const FlatVector metadata = table.vector(6, 4);
    take_fields(metadata.size());
    for (uint32_t i = 0; i < metadata.size(); ++i) {
      const FlatTable pair = metadata.table(i);
      if (pair.string(0) == "ARROW:extension:name") field.extension_name = text(pair.string(1));
      if (pair.string(0) == "ARROW:extension:metadata") field.extension_metadata = counted(pair.string(1));
    }
    return field;
  }

  std::string text(std::string_view value) {
    std::string copy = counted(value);
    if (!is_utf8(std::as_bytes(std::span(copy)))) fail(Fault::kUtf8, "schema: the name of a column is not UTF-8");
    return copy;
  }

  std::string counted(std::string_view value) {
    text_left_ -= static_cast<int64_t>(value.size());
    if (text_left_ < 0) fail(Fault::kSchemaType, "schema: more than " + std::to_string(kMaxText) + " bytes of names");
    return std::string(value);
  }

  // Fields, and the entries of their metadata.
  void take_fields(uint32_t count) {
    fields_left_ -= count;
    if (fields_left_ < 0) fail(Fault::kSchemaType, "schema: more than " + std::to_string(kMaxFields) + " fields");
  }

  int64_t fields_left_ = kMaxFields;
  int64_t text_left_ = kMaxText;
};

}  // namespace

Schema parse_schema(const FlatTable& schema) {
  if (schema.scalar<int16_t>(0, 0) != 0) {
    throw Error(ErrorKind::kUnsupported, "big_endian",
                "the data are big-endian, which is not read in place; run \"fastshard convert\" on the source");
  }
  return SchemaParser().parse(schema.vector(1, 4));
}

}  // namespace fastshard::ipc
