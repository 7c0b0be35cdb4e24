#include "ipc/schema.h"

#include "ipc/fault.h"

namespace fastshard::ipc {
namespace {

constexpr int kMaxDepth = 64;
constexpr uint32_t kMaxFields = 1U << 20;

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

[[noreturn]] void refuse(const std::string& path, const char* what) {
  throw Error(
      ErrorKind::kUnsupported, "unsupported_type",
      "column '" + path + "' is " + what + ", which is not read in place; run \"fastshard convert\" on the source");
}

[[noreturn]] void bad_type(const std::string& path, const std::string& what) {
  fail(Fault::kSchemaType, "schema: column '" + path + "': " + what);
}

const char* time_unit(const std::string& path, int16_t unit) {
  switch (unit) {
    case 0:
      return "s";
    case 1:
      return "ms";
    case 2:
      return "us";
    case 3:
      return "ns";
    default:
      bad_type(path, "time unit " + std::to_string(unit) + " is not known");
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

void parse_int(Field& field, const FlatTable& type, const std::string& path) {
  const int32_t bits = type.scalar<int32_t>(0, 0);
  const bool is_signed = type.scalar<uint8_t>(1, 0) != 0;
  switch (bits) {
    case 8:
      return set_fixed(field, is_signed ? Type::kInt8 : Type::kUInt8, 1);
    case 16:
      return set_fixed(field, is_signed ? Type::kInt16 : Type::kUInt16, 2);
    case 32:
      return set_fixed(field, is_signed ? Type::kInt32 : Type::kUInt32, 4);
    case 64:
      return set_fixed(field, is_signed ? Type::kInt64 : Type::kUInt64, 8);
    default:
      bad_type(path, "an integer of " + std::to_string(bits) + " bits is not known");
  }
}

void parse_float(Field& field, const FlatTable& type, const std::string& path) {
  switch (const int16_t precision = type.scalar<int16_t>(0, 0); precision) {
    case 0:
      return set_fixed(field, Type::kHalf, 2);
    case 1:
      return set_fixed(field, Type::kFloat, 4);
    case 2:
      return set_fixed(field, Type::kDouble, 8);
    default:
      bad_type(path, "floating-point precision " + std::to_string(precision) + " is not known");
  }
}

void parse_decimal(Field& field, const FlatTable& type, const std::string& path) {
  const int32_t bits = type.scalar<int32_t>(2, 128);
  if (bits != 32 && bits != 64 && bits != 128 && bits != 256) {
    bad_type(path, "a decimal of " + std::to_string(bits) + " bits is not known");
  }
  set_fixed(field, Type::kDecimal, bits / 8);
  field.precision = type.scalar<int32_t>(0, 0);
  field.scale = type.scalar<int32_t>(1, 0);
}

void parse_time(Field& field, const FlatTable& type, const std::string& path) {
  field.unit = time_unit(path, type.scalar<int16_t>(0, 1));
  const int32_t bits = type.scalar<int32_t>(1, 32);
  if (bits != 32 && bits != 64) bad_type(path, "a time of " + std::to_string(bits) + " bits is not known");
  set_fixed(field, bits == 32 ? Type::kTime32 : Type::kTime64, bits / 8);
}

void parse_interval(Field& field, const FlatTable& type, const std::string& path) {
  switch (const int16_t unit = type.scalar<int16_t>(0, 0); unit) {
    case 0:
      return set_fixed(field, Type::kIntervalMonths, 4);
    case 1:
      return set_fixed(field, Type::kIntervalDayTime, 8);
    case 2:
      return set_fixed(field, Type::kIntervalMonthDayNano, 16);
    default:
      bad_type(path, "interval unit " + std::to_string(unit) + " is not known");
  }
}

void parse_type(Field& field, uint8_t id, const FlatTable& type, const std::string& path) {
  switch (id) {
    case kFlatNull:
      return set(field, Type::kNull, Layout::kNull);
    case kFlatInt:
      return parse_int(field, type, path);
    case kFlatFloatingPoint:
      return parse_float(field, type, path);
    case kFlatBinary:
      return set(field, Type::kBinary, Layout::kBinary32);
    case kFlatUtf8:
      return set(field, Type::kUtf8, Layout::kBinary32);
    case kFlatBool:
      return set(field, Type::kBool, Layout::kBits);
    case kFlatDecimal:
      return parse_decimal(field, type, path);
    case kFlatDate: {
      const bool days = type.scalar<int16_t>(0, 1) == 0;
      field.unit = days ? "D" : "ms";
      return set_fixed(field, days ? Type::kDate32 : Type::kDate64, days ? 4 : 8);
    }
    case kFlatTime:
      return parse_time(field, type, path);
    case kFlatTimestamp:
      field.unit = time_unit(path, type.scalar<int16_t>(0, 0));
      return set_fixed(field, Type::kTimestamp, 8);
    case kFlatInterval:
      return parse_interval(field, type, path);
    case kFlatList:
      return set(field, Type::kList, Layout::kList32);
    case kFlatStruct:
      return set(field, Type::kStruct, Layout::kStruct);
    case kFlatUnion:
      refuse(path, "a union");
    case kFlatFixedSizeBinary: {
      const int32_t width = type.scalar<int32_t>(0, 0);
      if (width < 0) bad_type(path, "a negative byte width");
      return set_fixed(field, Type::kFixedBinary, width);
    }
    case kFlatFixedSizeList:
      field.list_size = type.scalar<int32_t>(0, 0);
      if (field.list_size < 0) bad_type(path, "a negative list size");
      return set(field, Type::kFixedList, Layout::kFixedList);
    case kFlatMap:
      return set(field, Type::kMap, Layout::kList32);
    case kFlatDuration:
      field.unit = time_unit(path, type.scalar<int16_t>(0, 1));
      return set_fixed(field, Type::kDuration, 8);
    case kFlatLargeBinary:
      return set(field, Type::kLargeBinary, Layout::kBinary64);
    case kFlatLargeUtf8:
      return set(field, Type::kLargeUtf8, Layout::kBinary64);
    case kFlatLargeList:
      return set(field, Type::kLargeList, Layout::kList64);
    case kFlatRunEndEncoded:
      refuse(path, "run-end encoded");
    case kFlatBinaryView:
      return set(field, Type::kBinaryView, Layout::kBinaryView);
    case kFlatUtf8View:
      return set(field, Type::kUtf8View, Layout::kBinaryView);
    case kFlatListView:
      return set(field, Type::kListView, Layout::kListView32);
    case kFlatLargeListView:
      return set(field, Type::kLargeListView, Layout::kListView64);
    default:
      bad_type(path, "type id " + std::to_string(id) + " is not known");
  }
}

void check_children(const Field& field, const std::string& path) {
  size_t expected = 0;
  switch (field.layout) {
    case Layout::kStruct:
      return;
    case Layout::kList32:
    case Layout::kList64:
    case Layout::kListView32:
    case Layout::kListView64:
    case Layout::kFixedList:
      expected = 1;
      break;
    default:
      break;
  }
  if (field.children.size() != expected) {
    fail(Fault::kSchemaChildren, "schema: column '" + path + "' of type " + name_of(field.type) + " has " +
                                     std::to_string(field.children.size()) + " children, not " +
                                     std::to_string(expected));
  }
  if (field.type == Type::kMap && (field.children[0].type != Type::kStruct || field.children[0].children.size() != 2)) {
    fail(Fault::kSchemaChildren,
         "schema: column '" + path + "' is a map whose entries are not a struct of key and value");
  }
}

Field parse_field(const FlatTable& table, const std::string& parent, int depth) {
  Field field;
  field.name = std::string(table.string(0));
  const std::string path = parent.empty() ? field.name : parent + "." + field.name;
  if (depth > kMaxDepth) {
    fail(Fault::kSchemaDepth, "schema: column '" + path + "' is nested deeper than " + std::to_string(kMaxDepth));
  }
  field.nullable = table.scalar<uint8_t>(1, 0) != 0;
  if (table.has(4)) refuse(path, "dictionary-encoded");
  const std::optional<FlatTable> type = table.table(3);
  if (!type) bad_type(path, "it has no type");
  parse_type(field, table.scalar<uint8_t>(2, 0), *type, path);
  const FlatVector children = table.vector(5, 4);
  for (uint32_t i = 0; i < children.size(); ++i)
    field.children.push_back(parse_field(children.table(i), path, depth + 1));
  check_children(field, path);
  const FlatVector metadata = table.vector(6, 4);
  for (uint32_t i = 0; i < metadata.size(); ++i) {
    const FlatTable pair = metadata.table(i);
    if (pair.string(0) == "ARROW:extension:name") field.extension_name = std::string(pair.string(1));
    if (pair.string(0) == "ARROW:extension:metadata") field.extension_metadata = std::string(pair.string(1));
  }
  return field;
}

}  // namespace

const char* name_of(Type type) noexcept {
  switch (type) {
    case Type::kNull:
      return "null";
    case Type::kBool:
      return "bool";
    case Type::kInt8:
      return "int8";
    case Type::kInt16:
      return "int16";
    case Type::kInt32:
      return "int32";
    case Type::kInt64:
      return "int64";
    case Type::kUInt8:
      return "uint8";
    case Type::kUInt16:
      return "uint16";
    case Type::kUInt32:
      return "uint32";
    case Type::kUInt64:
      return "uint64";
    case Type::kHalf:
      return "float16";
    case Type::kFloat:
      return "float32";
    case Type::kDouble:
      return "float64";
    case Type::kDecimal:
      return "decimal";
    case Type::kDate32:
      return "date32";
    case Type::kDate64:
      return "date64";
    case Type::kTime32:
      return "time32";
    case Type::kTime64:
      return "time64";
    case Type::kTimestamp:
      return "timestamp";
    case Type::kDuration:
      return "duration";
    case Type::kIntervalMonths:
      return "interval_months";
    case Type::kIntervalDayTime:
      return "interval_day_time";
    case Type::kIntervalMonthDayNano:
      return "interval_month_day_nano";
    case Type::kBinary:
      return "binary";
    case Type::kUtf8:
      return "utf8";
    case Type::kLargeBinary:
      return "large_binary";
    case Type::kLargeUtf8:
      return "large_utf8";
    case Type::kBinaryView:
      return "binary_view";
    case Type::kUtf8View:
      return "utf8_view";
    case Type::kFixedBinary:
      return "fixed_size_binary";
    case Type::kList:
      return "list";
    case Type::kLargeList:
      return "large_list";
    case Type::kListView:
      return "list_view";
    case Type::kLargeListView:
      return "large_list_view";
    case Type::kFixedList:
      return "fixed_size_list";
    case Type::kStruct:
      return "struct";
    case Type::kMap:
      return "map";
  }
  return "unknown";
}

bool Field::same_type(const Field& other) const {
  if (type != other.type || layout != other.layout || byte_width != other.byte_width || list_size != other.list_size ||
      precision != other.precision || scale != other.scale || unit != other.unit ||
      children.size() != other.children.size()) {
    return false;
  }
  for (size_t i = 0; i < children.size(); ++i) {
    if (type == Type::kStruct && children[i].name != other.children[i].name) return false;
    if (!children[i].same_type(other.children[i])) return false;
  }
  return true;
}

std::string Field::type_name() const {
  std::string text = name_of(type);
  if (type == Type::kDecimal) {
    text += std::to_string(byte_width * 8) + "(" + std::to_string(precision) + ", " + std::to_string(scale) + ")";
  } else if (!unit.empty() && type != Type::kDate32 && type != Type::kDate64) {
    text += "[" + unit + "]";
  } else if (type == Type::kFixedBinary) {
    text += "[" + std::to_string(byte_width) + "]";
  }
  if (!children.empty()) {
    text += "<";
    for (size_t i = 0; i < children.size(); ++i) {
      if (i != 0) text += ", ";
      if (type == Type::kStruct) text += children[i].name + ": ";
      text += children[i].type_name();
    }
    text += ">";
  }
  if (type == Type::kFixedList) text += "[" + std::to_string(list_size) + "]";
  return text;
}

Schema parse_schema(const FlatTable& schema) {
  if (schema.scalar<int16_t>(0, 0) != 0) {
    throw Error(ErrorKind::kUnsupported, "big_endian",
                "the data are big-endian, which is not read in place; run \"fastshard convert\" on the source");
  }
  Schema parsed;
  const FlatVector fields = schema.vector(1, 4);
  if (fields.size() > kMaxFields)
    fail(Fault::kSchemaType, "schema: " + std::to_string(fields.size()) + " columns are too many");
  parsed.fields.reserve(fields.size());
  for (uint32_t i = 0; i < fields.size(); ++i) parsed.fields.push_back(parse_field(fields.table(i), "", 0));
  return parsed;
}

}  // namespace fastshard::ipc
