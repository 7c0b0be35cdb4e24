#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/fault_guard.h"
#include "bindings/forms.h"
#include "bindings/python_values.h"
#include "bindings/tensors.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using ipc::Layout;
using pipeline::Column;

py::object filled_array(int type_number, std::vector<npy_intp> shape, int byte) {
  PyObject* const array = PyArray_SimpleNew(static_cast<int>(shape.size()), shape.data(), type_number);
  if (array == nullptr) throw py::error_already_set();
  auto* const numpy = reinterpret_cast<PyArrayObject*>(array);
  std::memset(PyArray_DATA(numpy), byte, static_cast<size_t>(PyArray_NBYTES(numpy)));
  return py::reinterpret_steal<py::object>(array);
}

py::object mask_of(Column& column, std::vector<npy_intp> shape) {
  if (!column.has_nulls) return py::none();
  return owning_array(std::move(column.valid), NPY_BOOL, std::move(shape));
}

// The columns between the rows and the innermost values, those included, from the outside in.
std::vector<Column*> levels_below(Column& column) {
  std::vector<Column*> levels;
  for (Column* at = &column; at->field->layout == Layout::kFixedList || is_list(*at->field);) {
    at = &at->children[0];
    levels.push_back(at);
  }
  return levels;
}

// A value is valid where it and every list around it is.
py::object element_mask(const std::vector<Column*>& levels, const std::vector<npy_intp>& shape) {
  if (levels.empty()) return py::none();
  Column& values = *levels.back();
  if (std::none_of(levels.begin(), levels.end() - 1, [](const Column* level) { return level->has_nulls; }))
    return mask_of(values, shape);
  py::object mask = filled_array(NPY_BOOL, shape, 1);
  auto* const out = static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(mask.ptr())));
  for (const Column* level : levels) {
    const int64_t width = level->length == 0 ? 0 : values.length / level->length;  // all lists of a level are as long
    for (int64_t i = 0; i < level->length; ++i) {
      if (!level->is_valid(i)) std::memset(out + i * width, 0, static_cast<size_t>(width));
    }
  }
  return mask;
}

void check_list_lengths(const Column& column, int64_t length) {
  for (int64_t row = 0; row < column.length; ++row) {
    if (column.size(row) != length) {
      throw RowError(row, "list_length",
                     "column '" + column.field->name + "' has a list of " + std::to_string(column.size(row)) +
                         " values, the index says all have " + std::to_string(length) + "; run \"fastshard verify\"");
    }
  }
}

// Arrays as tensors, if they are asked for.
py::object make_array(const Tensors* tensors, pipeline::Buffer buffer, int type_number,
                      const std::vector<npy_intp>& shape) {
  if (tensors == nullptr) return owning_array(std::move(buffer), type_number, shape);
  return tensor_or_array(*tensors, std::move(buffer), type_number, shape);
}

py::object whole_array(Column column, const Form& form, const Tensors* tensors) {
  if (is_list(*column.field)) check_list_lengths(column, form.list_length);
  std::vector<npy_intp> shape{static_cast<npy_intp>(column.length)};
  shape.insert(shape.end(), form.shape.begin(), form.shape.end());
  const std::vector<Column*> levels = levels_below(column);
  Column& values = levels.empty() ? column : *levels.back();
  py::object valid = mask_of(column, {shape[0]});
  py::object element_valid = element_mask(levels, shape);
  if (valid.is_none() && element_valid.is_none())
    return make_array(tensors, std::move(values.data), form.type_number, shape);
  py::object array = owning_array(std::move(values.data), form.type_number, shape);
  return py::make_tuple(std::move(array), std::move(valid), std::move(element_valid));
}

py::object offsets_array(Column& column) {
  return owning_array(std::move(column.offsets), NPY_INT64, {static_cast<npy_intp>(column.length + 1)});
}

py::object whole_ragged(Column column, const Form& form, const Tensors* tensors) {
  Column& child = column.children[0];
  const auto count = static_cast<npy_intp>(child.length);
  if (child.has_nulls || column.has_nulls) tensors = nullptr;
  py::object values = make_array(tensors, std::move(child.data), form.type_number, {count});
  py::object offsets = make_array(tensors, std::move(column.offsets), NPY_INT64, {column.length + 1});
  py::object element_valid = mask_of(child, {count});
  py::object valid = mask_of(column, {static_cast<npy_intp>(column.length)});
  return py::make_tuple(std::move(values), std::move(offsets), std::move(valid), std::move(element_valid));
}

py::object whole_padded(Column column, const Form& form) {
  Column& child = column.children[0];
  const std::vector<npy_intp> shape{static_cast<npy_intp>(column.length), static_cast<npy_intp>(form.padding.length)};
  py::object values = owning_array(std::move(child.data), form.type_number, shape);
  py::object lengths = owning_array(std::move(column.lengths), NPY_INT64, {shape[0]});
  py::object element_valid = mask_of(child, shape);
  py::object valid = mask_of(column, {shape[0]});
  return py::make_tuple(std::move(values), std::move(lengths), std::move(valid), std::move(element_valid));
}

// One array over the characters of all rows, and for each row a view of it, which keeps it.
py::object whole_views(Column column) {
  const bool has_offsets = !column.offsets.empty();
  const int64_t width = column.field->layout == Layout::kFixed ? column.field->byte_width : 0;
  const int64_t total = has_offsets ? column.begin(column.length) : column.length * width;
  py::object list = py::reinterpret_steal<py::object>(PyList_New(static_cast<py::ssize_t>(column.length)));
  if (!list) throw py::error_already_set();
  auto* const first = reinterpret_cast<char*>(column.data.data());
  const py::object whole = owning_array(std::move(column.data), NPY_UINT8, {static_cast<npy_intp>(total)});
  for (int64_t row = 0; row < column.length; ++row) {
    PyObject* item = Py_None;
    if (column.is_valid(row)) {
      npy_intp size = has_offsets ? column.size(row) : width;
      char* const at = first + (has_offsets ? column.begin(row) : row * width);
      item = PyArray_New(&PyArray_Type, 1, &size, NPY_UINT8, nullptr, at, 0, NPY_ARRAY_CARRAY, nullptr);
      if (item == nullptr) throw py::error_already_set();
      Py_INCREF(whole.ptr());
      if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(item), whole.ptr()) != 0) {
        Py_DECREF(item);
        throw py::error_already_set();
      }
    } else {
      Py_INCREF(item);
    }
    PyList_SET_ITEM(list.ptr(), static_cast<py::ssize_t>(row), item);
  }
  return list;
}

py::object whole_tensors(Column column, const Form& form) {
  Column& data = column.children[form.data];
  Column& shapes = column.children[form.shapes];
  Column& values = data.children[0];
  const auto rows = static_cast<npy_intp>(column.length);
  const auto count = static_cast<npy_intp>(values.length);
  // Without values or without a shape there is no tensor.
  py::object valid = py::none();
  if (column.has_nulls || data.has_nulls || shapes.has_nulls || shapes.children[0].has_nulls) {
    valid = filled_array(NPY_BOOL, {rows}, 1);
    auto* const out = static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(valid.ptr())));
    const int64_t dimensions = shapes.field->list_size;
    for (int64_t row = 0; row < column.length; ++row) {
      bool whole = column.is_valid(row) && data.is_valid(row) && shapes.is_valid(row);
      for (int64_t i = row * dimensions; whole && i < (row + 1) * dimensions; ++i)
        whole = shapes.children[0].is_valid(i);
      out[row] = static_cast<std::byte>(whole ? 1 : 0);
    }
  }
  py::object array = owning_array(std::move(values.data), form.type_number, {count});
  py::object sizes = owning_array(std::move(shapes.children[0].data), NPY_INT32,
                                  {rows, static_cast<npy_intp>(shapes.field->list_size)});
  py::object element_valid = mask_of(values, {count});
  return py::make_tuple(std::move(array), offsets_array(data), std::move(sizes), std::move(valid),
                        std::move(element_valid));
}

py::object whole_struct(Column column, const Form& form) {
  py::dict dict;
  for (size_t i = 0; i < form.children.size(); ++i)
    dict[form.names[i]] = whole_column(std::move(column.children[i]), form.children[i]);
  const std::vector<npy_intp> rows{static_cast<npy_intp>(column.length)};
  py::object valid = mask_of(column, rows);
  // Without fields the mask alone tells how many rows there are.
  if (form.children.empty() && valid.is_none()) valid = filled_array(NPY_BOOL, rows, 1);
  return py::make_tuple(std::move(dict), std::move(valid));
}

// Values as bytes objects, copied once: into new objects, from where `gather` left them.
py::object copy_left(const Column& column) {
  const auto count = static_cast<size_t>(column.length);
  std::vector<py::object> values(count);
  std::vector<char*> places(count);
  for (size_t i = 0; i < count; ++i) {
    if (!column.is_valid(static_cast<int64_t>(i))) {
      values[i] = py::none();
      continue;
    }
    values[i] = py::reinterpret_steal<py::object>(
        PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(column.left[i].size())));
    if (!values[i]) throw py::error_already_set();
    places[i] = PyBytes_AS_STRING(values[i].ptr());
  }
  bool copied = false;
  {
    const py::gil_scoped_release release;
    const ByteSpan* const from = column.left.data();
    char* const* const to = places.data();
    copied = run_guarded([from, to, count] {
      for (size_t i = 0; i < count; ++i) {
        if (!from[i].empty()) std::memcpy(to[i], from[i].data(), from[i].size());
      }
    });
  }
  if (!copied) throw VanishedError();
  py::object list = py::reinterpret_steal<py::object>(PyList_New(static_cast<py::ssize_t>(count)));
  if (!list) throw py::error_already_set();
  for (size_t i = 0; i < count; ++i)
    PyList_SET_ITEM(list.ptr(), static_cast<py::ssize_t>(i), values[i].release().ptr());
  return list;
}

py::object whole_list(const Column& column) {
  PyObject* const list = PyList_New(static_cast<py::ssize_t>(column.length));
  if (list == nullptr) throw py::error_already_set();
  py::object owner = py::reinterpret_steal<py::object>(list);
  int64_t row = 0;
  try {
    for (; row < column.length; ++row)
      PyList_SET_ITEM(list, static_cast<py::ssize_t>(row), plain_value(column, row).release().ptr());
  } catch (const Error& error) {
    throw RowError(row, error);
  }
  return owner;
}

}  // namespace

py::object whole_column(Column column, const Form& form, const Tensors* tensors) {
  switch (form.kind) {
    case FormKind::kArray: return whole_array(std::move(column), form, tensors);
    case FormKind::kRagged: return whole_ragged(std::move(column), form, tensors);
    case FormKind::kPadded: return whole_padded(std::move(column), form);
    case FormKind::kViews: return whole_views(std::move(column));
    case FormKind::kTensors: return whole_tensors(std::move(column), form);
    case FormKind::kStruct: return whole_struct(std::move(column), form);
    case FormKind::kBytes:
      if (!column.left.empty()) return copy_left(column);
      break;
    case FormKind::kText:
    case FormKind::kObject: break;
  }
  return whole_list(column);
}

}  // namespace fastshard::bindings
