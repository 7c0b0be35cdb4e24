// An Arrow schema, parsed from its IPC message and checked. What it cannot hold (dictionaries, run-end encoding,
// unions, big-endian data) is refused with the column's name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "ipc/flatbuffer.h"

namespace fastshard::ipc {

enum class Type : uint8_t {
  kNull,
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kHalf,
  kFloat,
  kDouble,
  kDecimal,  // byte_width 4, 8, 16, 32
  kDate32,
  kDate64,
  kTime32,
  kTime64,
  kTimestamp,
  kDuration,
  kIntervalMonths,
  kIntervalDayTime,
  kIntervalMonthDayNano,
  kBinary,
  kUtf8,
  kLargeBinary,
  kLargeUtf8,
  kBinaryView,
  kUtf8View,
  kFixedBinary,
  kList,
  kLargeList,
  kListView,
  kLargeListView,
  kFixedList,
  kStruct,
  kMap,
};

// How the values of a type lie in memory; everything that reads buffers switches on this, not on the type.
enum class Layout : uint8_t {
  kNull,
  kBits,
  kFixed,
  kBinary32,
  kBinary64,
  kBinaryView,
  kList32,
  kList64,
  kListView32,
  kListView64,
  kFixedList,
  kStruct
};

struct Field {
  std::string name;
  Type type = Type::kNull;
  Layout layout = Layout::kNull;
  bool nullable = true;
  int32_t byte_width = 0;  // kFixed: bytes of one value
  int32_t list_size = 0;   // kFixedList: elements of one value
  int32_t precision = 0;   // kDecimal
  int32_t scale = 0;       // kDecimal
  std::string unit;        // temporal types: "s", "ms", "us", "ns", "D"
  std::string extension_name;
  std::string extension_metadata;
  std::vector<Field> children;

  [[nodiscard]] bool is_text() const noexcept {
    return type == Type::kUtf8 || type == Type::kLargeUtf8 || type == Type::kUtf8View;
  }
  // Same physical type, names of children included; metadata and nullability may differ.
  [[nodiscard]] bool same_type(const Field& other) const;
  [[nodiscard]] std::string type_name() const;
};

struct Schema {
  std::vector<Field> fields;
};

[[nodiscard]] const char* name_of(Type type) noexcept;

// `schema` is the Schema table of a message or of a footer.
[[nodiscard]] Schema parse_schema(const FlatTable& schema);

}  // namespace fastshard::ipc
