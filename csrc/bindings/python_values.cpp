#include "bindings/python_values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "base/bytes.h"
#include "base/error.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using ipc::Layout;
using ipc::Type;
using pipeline::Column;

py::object checked(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

// IEEE 754 binary16 to double.
double half_to_double(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int fraction = bits & 0x3FF;
  double value = 0;
  if (exponent == 0) {
    value = __builtin_ldexp(fraction, -24);
  } else if (exponent == 31) {
    value = fraction == 0 ? __builtin_inf() : __builtin_nan("");
  } else {
    value = __builtin_ldexp(fraction + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// A two's complement integer of `width` bytes in decimal digits, by division of its 32-bit limbs by 10^9.
std::string integer_text(const std::byte* value, int32_t width) {
  std::array<uint32_t, 8> limbs{};
  const auto count = static_cast<size_t>(width) / 4;
  std::memcpy(limbs.data(), value, static_cast<size_t>(width));
  const bool negative = (limbs[count - 1] >> 31) != 0;
  if (negative) {
    uint64_t carry = 1;
    for (size_t i = 0; i < count; ++i) {
      carry += static_cast<uint32_t>(~limbs[i]);
      limbs[i] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  std::string digits;
  while (std::any_of(limbs.begin(), limbs.begin() + static_cast<ptrdiff_t>(count),
                     [](uint32_t limb) { return limb != 0; })) {
    uint64_t remainder = 0;
    for (size_t i = count; i-- > 0;) {
      const uint64_t dividend = (remainder << 32) | limbs[i];
      limbs[i] = static_cast<uint32_t>(dividend / 1000000000U);
      remainder = dividend % 1000000000U;
    }
    for (int i = 0; i < 9; ++i) {
      digits.push_back(static_cast<char>('0' + remainder % 10));
      remainder /= 10;
    }
  }
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
  if (digits.empty()) digits = "0";
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

py::object decimal_value(const Column& column, int64_t row) {
  static py::handle type =
      py::object(py::module_::import("decimal").attr("Decimal")).release();  // lives with the process
  const ipc::Field& field = *column.field;
  const std::string text = integer_text(column.data.data() + row * field.byte_width, field.byte_width) + "E" +
                           std::to_string(-int64_t{field.scale});
  return type(text);
}

py::object interval_value(const Column& column, int64_t row) {
  const std::byte* const at = column.data.data() + row * column.field->byte_width;
  if (column.field->type == Type::kIntervalDayTime) return py::make_tuple(load<int32_t>(at), load<int32_t>(at + 4));
  return py::make_tuple(load<int32_t>(at), load<int32_t>(at + 4), load<int64_t>(at + 8));
}

py::object fixed_value(const Column& column, int64_t row) {
  const std::byte* const at = column.data.data() + row * column.field->byte_width;
  switch (column.field->type) {
    case Type::kInt8: return py::int_(load<int8_t>(at));
    case Type::kInt16: return py::int_(load<int16_t>(at));
    case Type::kInt32:
    case Type::kDate32:
    case Type::kTime32:
    case Type::kIntervalMonths: return py::int_(load<int32_t>(at));
    case Type::kInt64:
    case Type::kDate64:
    case Type::kTime64:
    case Type::kTimestamp:
    case Type::kDuration: return py::int_(load<int64_t>(at));
    case Type::kUInt8: return py::int_(load<uint8_t>(at));
    case Type::kUInt16: return py::int_(load<uint16_t>(at));
    case Type::kUInt32: return py::int_(load<uint32_t>(at));
    case Type::kUInt64: return py::int_(load<uint64_t>(at));
    case Type::kHalf: return py::float_(half_to_double(load<uint16_t>(at)));
    case Type::kFloat: return py::float_(static_cast<double>(load<float>(at)));
    case Type::kDouble: return py::float_(load<double>(at));
    case Type::kDecimal: return decimal_value(column, row);
    case Type::kIntervalDayTime:
    case Type::kIntervalMonthDayNano: return interval_value(column, row);
    default: return checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(at), column.field->byte_width));
  }
}

py::object characters(const Column& column, int64_t row) {
  const auto* const text = reinterpret_cast<const char*>(column.data.data()) + column.begin(row);
  const auto size = static_cast<py::ssize_t>(column.size(row));
  if (!column.field->is_text()) return checked(PyBytes_FromStringAndSize(text, size));
  PyObject* const decoded = PyUnicode_DecodeUTF8(text, size, nullptr);
  if (decoded == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError) == 0) throw py::error_already_set();
    PyErr_Clear();
    throw Error(ErrorKind::kCorrupt, "utf8",
                "column '" + column.field->name + "' holds a string that is not UTF-8; convert it as binary");
  }
  return py::reinterpret_steal<py::object>(decoded);
}

py::object list_value(const Column& child, int64_t begin, int64_t count) {
  py::object list = checked(PyList_New(static_cast<py::ssize_t>(count)));
  for (int64_t i = 0; i < count; ++i)
    PyList_SET_ITEM(list.ptr(), static_cast<py::ssize_t>(i), plain_value(child, begin + i).release().ptr());
  return list;
}

py::object map_value(const Column& entries, int64_t begin, int64_t count) {
  py::list pairs;
  for (int64_t i = begin; i < begin + count; ++i) {
    pairs.append(py::make_tuple(plain_value(entries.children[0], i), plain_value(entries.children[1], i)));
  }
  return pairs;
}

py::object struct_value(const Column& column, int64_t row) {
  py::dict dict;
  for (const Column& child : column.children) dict[py::str(child.field->name)] = plain_value(child, row);
  return dict;
}

}  // namespace

py::object plain_value(const Column& column, int64_t row) {
  if (!column.is_valid(row)) return py::none();
  switch (column.field->layout) {
    case Layout::kNull: return py::none();
    case Layout::kBits: return py::bool_(column.data.data()[row] != std::byte{0});
    case Layout::kFixed: return fixed_value(column, row);
    case Layout::kBinary32:
    case Layout::kBinary64:
    case Layout::kBinaryView: return characters(column, row);
    case Layout::kList32:
    case Layout::kList64:
    case Layout::kListView32:
    case Layout::kListView64:
      if (column.field->type == Type::kMap) return map_value(column.children[0], column.begin(row), column.size(row));
      return list_value(column.children[0], column.begin(row), column.size(row));
    case Layout::kFixedList:
      return list_value(column.children[0], row * column.field->list_size, column.field->list_size);
    case Layout::kStruct: return struct_value(column, row);
  }
  return py::none();
}

}  // namespace fastshard::bindings
