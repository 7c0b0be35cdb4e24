#include "bindings/forms.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "bindings/python_values.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using ipc::Field;
using ipc::Layout;
using ipc::Type;
using pipeline::Buffer;
using pipeline::Column;

bool is_list(const Field& field) {
  return field.layout == Layout::kList32 || field.layout == Layout::kList64 || field.layout == Layout::kListView32 ||
         field.layout == Layout::kListView64;
}

[[noreturn]] void misfit(const Field& field, const char* form) {
  throw Error(ErrorKind::kInvalid,
              "column '" + field.name + "' of type " + field.type_name() + " cannot be shown as " + form);
}

// An array that owns `buffer`; its memory goes back to the pool when the last view of it is gone.
py::object adopt(Buffer buffer, int type_number, std::vector<npy_intp> shape) {
  void* const data = buffer.data();
  auto* const held = new Buffer(std::move(buffer));
  PyObject* const capsule = PyCapsule_New(
      held, nullptr, [](PyObject* self) { delete static_cast<Buffer*>(PyCapsule_GetPointer(self, nullptr)); });
  if (capsule == nullptr) {
    delete held;
    throw py::error_already_set();
  }
  PyObject* const array = PyArray_New(&PyArray_Type, static_cast<int>(shape.size()), shape.data(), type_number, nullptr,
                                      data, 0, NPY_ARRAY_CARRAY, nullptr);
  if (array == nullptr) {
    Py_DECREF(capsule);
    throw py::error_already_set();
  }
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), capsule) !=
      0) {  // takes the capsule, also on failure
    Py_DECREF(array);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(array);
}

py::object empty_array(int type_number, std::vector<npy_intp> shape) {
  PyObject* const array = PyArray_ZEROS(static_cast<int>(shape.size()), shape.data(), type_number, 0);
  if (array == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(array);
}

py::object values_array(Buffer buffer, int type_number, std::vector<npy_intp> shape) {
  if (buffer.empty()) return empty_array(type_number, std::move(shape));
  return adopt(std::move(buffer), type_number, std::move(shape));
}

py::object mask_of(Column& column, std::vector<npy_intp> shape) {
  if (!column.has_nulls) return py::none();
  return adopt(std::move(column.valid), NPY_BOOL, std::move(shape));
}

// Down through lists of one length to the values; checks that lists have the length that the form promises.
Column& innermost(Column& column, const Form& form, size_t depth = 0) {
  if (is_list(*column.field)) {
    const auto length = static_cast<int64_t>(form.shape[depth]);
    for (int64_t row = 0; row < column.length; ++row) {
      if (column.size(row) != length) {
        throw Error(ErrorKind::kCorrupt, "list_length",
                    "column '" + column.field->name + "' has a list of " + std::to_string(column.size(row)) +
                        " values, the index says all have " + std::to_string(length) + "; run \"fastshard verify\"");
      }
    }
    return innermost(column.children[0], form, depth + 1);
  }
  if (column.field->layout == Layout::kFixedList) return innermost(column.children[0], form, depth + 1);
  return column;
}

const Field& innermost_field(const Field& field) {
  return is_list(field) || field.layout == Layout::kFixedList ? innermost_field(field.children[0]) : field;
}

py::object whole_array(Column column, const Form& form) {
  std::vector<npy_intp> shape{static_cast<npy_intp>(column.length)};
  shape.insert(shape.end(), form.shape.begin(), form.shape.end());
  Column& values = innermost(column, form);
  py::object valid = mask_of(column, {shape[0]});
  py::object element_valid = &values == &column ? py::object(py::none()) : mask_of(values, shape);
  py::object array = values_array(std::move(values.data), form.type_number, shape);
  if (valid.is_none() && element_valid.is_none()) return array;
  return py::make_tuple(std::move(array), std::move(valid), std::move(element_valid));
}

py::object offsets_array(Column& column) {
  return adopt(std::move(column.offsets), NPY_INT64, {static_cast<npy_intp>(column.length + 1)});
}

py::object whole_ragged(Column column, const Form& form) {
  Column& child = column.children[0];
  const auto count = static_cast<npy_intp>(child.length);
  py::object values = values_array(std::move(child.data), form.type_number, {count});
  py::object element_valid = mask_of(child, {count});
  py::object valid = mask_of(column, {static_cast<npy_intp>(column.length)});
  return py::make_tuple(std::move(values), offsets_array(column), std::move(valid), std::move(element_valid));
}

py::object whole_tensors(Column column, const Form& form) {
  Column& data = column.children[0];
  Column& shapes = column.children[1];
  Column& values = data.children[0];
  const auto dimensions = static_cast<npy_intp>(shapes.field->list_size);
  py::object array = values_array(std::move(values.data), form.type_number, {static_cast<npy_intp>(values.length)});
  py::object shape_array =
      values_array(std::move(shapes.children[0].data), NPY_INT32, {static_cast<npy_intp>(column.length), dimensions});
  py::object valid = mask_of(column, {static_cast<npy_intp>(column.length)});
  return py::make_tuple(std::move(array), offsets_array(data), std::move(shape_array), std::move(valid));
}

py::object whole_struct(Column column, const Form& form) {
  py::dict dict;
  for (size_t i = 0; i < form.children.size(); ++i)
    dict[form.names[i]] = whole_column(std::move(column.children[i]), form.children[i]);
  return py::make_tuple(std::move(dict), mask_of(column, {static_cast<npy_intp>(column.length)}));
}

py::object whole_list(const Column& column, const Form& form) {
  PyObject* const list = PyList_New(static_cast<py::ssize_t>(column.length));
  if (list == nullptr) throw py::error_already_set();
  py::object owner = py::reinterpret_steal<py::object>(list);
  for (int64_t row = 0; row < column.length; ++row) {
    PyList_SET_ITEM(list, static_cast<py::ssize_t>(row),
                    form.kind == FormKind::kObject ? plain_value(column, row).release().ptr()
                                                   : one_value(column, row, form).release().ptr());
  }
  return owner;
}

// A copy of `count` values as a new array; nulls among them become NaN where the type has it, else the result is a
// list.
py::object copied_values(const Column& values, int64_t first, int64_t count, const Form& form,
                         std::vector<npy_intp> shape) {
  const bool floating = PyTypeNum_ISFLOAT(form.type_number);
  const bool any_null =
      values.has_nulls && std::any_of(values.valid.data() + first, values.valid.data() + first + count,
                                      [](std::byte valid) { return valid == std::byte{0}; });
  if (any_null && !floating) {
    py::list list;
    for (int64_t i = first; i < first + count; ++i) list.append(plain_value(values, i));
    return list;
  }
  py::object array = py::reinterpret_steal<py::object>(
      PyArray_SimpleNew(static_cast<int>(shape.size()), shape.data(), form.type_number));
  if (!array) throw py::error_already_set();
  auto* const out = static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
  const auto width = static_cast<size_t>(PyArray_ITEMSIZE(reinterpret_cast<PyArrayObject*>(array.ptr())));
  if (count != 0)
    std::memcpy(out, values.data.data() + static_cast<size_t>(first) * width, static_cast<size_t>(count) * width);
  if (any_null) {
    for (int64_t i = 0; i < count; ++i) {
      if (values.is_valid(first + i)) continue;
      switch (width) {
        case 2: {
          const uint16_t nan = 0x7E00;
          std::memcpy(out + i * 2, &nan, 2);
          break;
        }
        case 4: {
          const float nan = NAN;
          std::memcpy(out + i * 4, &nan, 4);
          break;
        }
        default: {
          const double nan = NAN;
          std::memcpy(out + i * 8, &nan, 8);
          break;
        }
      }
    }
  }
  return array;
}

py::object one_array(const Column& column, int64_t row, const Form& form) {
  if (form.shape.empty()) {
    const bool valid = column.is_valid(row);
    if (!valid && !PyTypeNum_ISFLOAT(form.type_number)) return py::none();
    py::object array = copied_values(column, row, 1, form, {});
    return py::reinterpret_steal<py::object>(PyArray_Return(reinterpret_cast<PyArrayObject*>(array.release().ptr())));
  }
  if (!column.is_valid(row)) return py::none();
  const Column* values = &column;
  int64_t first = row;
  int64_t count = 1;
  while (values->field->layout != Layout::kFixed && values->field->layout != Layout::kBits) {
    if (is_list(*values->field)) {
      const int64_t begin = values->begin(first);
      count = values->begin(first + count) - begin;
      first = begin;
    } else {
      first *= values->field->list_size;
      count *= values->field->list_size;
    }
    values = &values->children[0];
  }
  npy_intp expected = 1;
  for (const npy_intp size : form.shape) expected *= size;
  if (count != expected) {
    throw Error(ErrorKind::kCorrupt, "list_length",
                "column '" + column.field->name + "' has " + std::to_string(count) +
                    " values in a row, the index says all have " + std::to_string(expected));
  }
  return copied_values(*values, first, count, form, form.shape);
}

py::object one_tensor(const Column& column, int64_t row, const Form& form) {
  if (!column.is_valid(row)) return py::none();
  const Column& data = column.children[0];
  const Column& shapes = column.children[1];
  const int32_t dimensions = shapes.field->list_size;
  std::vector<npy_intp> shape;
  int64_t product = 1;
  for (int32_t i = 0; i < dimensions; ++i) {
    const auto size = load<int32_t>(shapes.children[0].data.data() + (row * dimensions + i) * 4);
    shape.push_back(size);
    if (size < 0 || !checked_multiply(product, size, product)) product = -1;
  }
  if (product != data.size(row)) {
    throw Error(ErrorKind::kCorrupt, "tensor_shape",
                "column '" + column.field->name + "' has a tensor of " + std::to_string(data.size(row)) +
                    " values whose shape says " + std::to_string(product));
  }
  return copied_values(data.children[0], data.begin(row), data.size(row), form, std::move(shape));
}

py::object one_struct(const Column& column, int64_t row, const Form& form) {
  if (!column.is_valid(row)) return py::none();
  py::dict dict;
  for (size_t i = 0; i < form.children.size(); ++i)
    dict[form.names[i]] = one_value(column.children[i], row, form.children[i]);
  return dict;
}

bool is_variable_tensor(const Field& field) {
  return field.layout == Layout::kStruct && field.children.size() == 2 && is_list(field.children[0]) &&
         numpy_type(field.children[0].children[0]) != NPY_VOID && field.children[1].layout == Layout::kFixedList &&
         field.children[1].children[0].type == Type::kInt32;
}

void check_array_shape(const Form& form, const Field& field) {
  const Field* inner = &field;
  int64_t lists = 0;
  int64_t values = 1;
  for (; is_list(*inner) || inner->layout == Layout::kFixedList; inner = &inner->children[0]) {
    if (is_list(*inner)) {
      if (lists != 0 || inner != &field) misfit(field, "an array");
      ++lists;
      if (form.shape.empty()) misfit(field, "an array without a shape");
      values *= form.shape[0];
    } else if (!checked_multiply(values, inner->list_size, values)) {
      misfit(field, "an array: it is too large");
    }
  }
  int64_t product = 1;
  for (const npy_intp size : form.shape) {
    if (size < 0 || !checked_multiply(product, size, product)) misfit(field, "an array of that shape");
  }
  if (product != values || (form.shape.empty() && inner != &field)) misfit(field, "an array of that shape");
}

}  // namespace

int numpy_type(const Field& field) {
  switch (field.type) {
    case Type::kBool: return NPY_BOOL;
    case Type::kInt8: return NPY_INT8;
    case Type::kInt16: return NPY_INT16;
    case Type::kInt32:
    case Type::kDate32:
    case Type::kTime32:
    case Type::kIntervalMonths: return NPY_INT32;
    case Type::kInt64:
    case Type::kDate64:
    case Type::kTime64:
    case Type::kTimestamp:
    case Type::kDuration: return NPY_INT64;
    case Type::kUInt8: return NPY_UINT8;
    case Type::kUInt16: return NPY_UINT16;
    case Type::kUInt32: return NPY_UINT32;
    case Type::kUInt64: return NPY_UINT64;
    case Type::kHalf: return NPY_HALF;
    case Type::kFloat: return NPY_FLOAT;
    case Type::kDouble: return NPY_DOUBLE;
    default: return NPY_VOID;
  }
}

Form parse_form(const py::handle& spec, const Field& field) {
  const auto parts = py::reinterpret_borrow<py::tuple>(spec);
  const auto kind = parts[0].cast<std::string>();
  Form form;
  if (kind == "array") {
    form.kind = FormKind::kArray;
    for (const py::handle size : parts[1]) form.shape.push_back(size.cast<npy_intp>());
    form.type_number = numpy_type(innermost_field(field));
    if (form.type_number == NPY_VOID) misfit(field, "an array");
    check_array_shape(form, field);
  } else if (kind == "text") {
    form.kind = FormKind::kText;
    if (!field.is_text()) misfit(field, "text");
  } else if (kind == "bytes") {
    form.kind = FormKind::kBytes;
    const bool binary = field.layout == Layout::kBinary32 || field.layout == Layout::kBinary64 ||
                        field.layout == Layout::kBinaryView || field.type == Type::kFixedBinary;
    if (!binary) misfit(field, "bytes");
  } else if (kind == "ragged") {
    form.kind = FormKind::kRagged;
    if (!is_list(field)) misfit(field, "a ragged array");
    form.type_number = numpy_type(field.children[0]);
    if (form.type_number == NPY_VOID) misfit(field, "a ragged array");
  } else if (kind == "tensors") {
    form.kind = FormKind::kTensors;
    if (!is_variable_tensor(field)) misfit(field, "tensors of varying shape");
    form.type_number = numpy_type(field.children[0].children[0]);
  } else if (kind == "struct") {
    form.kind = FormKind::kStruct;
    const auto children = py::reinterpret_borrow<py::tuple>(parts[2]);
    if (field.layout != Layout::kStruct || children.size() != field.children.size()) misfit(field, "a struct");
    for (size_t i = 0; i < children.size(); ++i) {
      const auto pair = py::reinterpret_borrow<py::tuple>(children[i]);
      form.names.push_back(py::reinterpret_borrow<py::str>(pair[0]));
      form.children.push_back(parse_form(pair[1], field.children[i]));
    }
  } else if (kind == "object") {
    form.kind = FormKind::kObject;
  } else {
    throw Error(ErrorKind::kInvalid, "there is no form '" + kind + "'");
  }
  return form;
}

py::object whole_column(Column column, const Form& form) {
  switch (form.kind) {
    case FormKind::kArray: return whole_array(std::move(column), form);
    case FormKind::kRagged: return whole_ragged(std::move(column), form);
    case FormKind::kTensors: return whole_tensors(std::move(column), form);
    case FormKind::kStruct: return whole_struct(std::move(column), form);
    case FormKind::kText:
    case FormKind::kBytes:
    case FormKind::kObject: break;
  }
  return whole_list(column, form);
}

py::object one_value(const Column& column, int64_t row, const Form& form) {
  switch (form.kind) {
    case FormKind::kArray: return one_array(column, row, form);
    case FormKind::kRagged: {
      if (!column.is_valid(row)) return py::none();
      const int64_t size = column.size(row);
      return copied_values(column.children[0], column.begin(row), size, form, {static_cast<npy_intp>(size)});
    }
    case FormKind::kTensors: return one_tensor(column, row, form);
    case FormKind::kStruct: return one_struct(column, row, form);
    case FormKind::kText:
    case FormKind::kBytes:
    case FormKind::kObject: break;
  }
  return plain_value(column, row);
}

}  // namespace fastshard::bindings
