#include <array>

#include "ipc/schema.h"

namespace fastshard::ipc {
namespace {

// In the order of Type.
constexpr std::array kTypeNames{
    "null",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "decimal",
    "date32",
    "date64",
    "time32",
    "time64",
    "timestamp",
    "duration",
    "interval_months",
    "interval_day_time",
    "interval_month_day_nano",
    "binary",
    "utf8",
    "large_binary",
    "large_utf8",
    "binary_view",
    "utf8_view",
    "fixed_size_binary",
    "list",
    "large_list",
    "list_view",
    "large_list_view",
    "fixed_size_list",
    "struct",
    "map",
};
static_assert(kTypeNames.size() == static_cast<size_t>(Type::kMap) + 1);

}  // namespace

const char* name_of(Type type) noexcept { return kTypeNames[static_cast<size_t>(type)]; }

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

}  // namespace fastshard::ipc
