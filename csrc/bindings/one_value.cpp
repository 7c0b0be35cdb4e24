#include <cmath>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "bindings/forms.h"
#include "bindings/python_values.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using ipc::Layout;
using pipeline::Column;

// Values [first, first + count) of `values`; those that lists around them hide are null as well.
struct Piece {
  const Column* values;
  int64_t first;
  int64_t count;
  std::vector<bool> hidden;  // [count], or empty where none is

  [[nodiscard]] bool is_valid(int64_t i) const {
    return values->is_valid(first + i) && (hidden.empty() || !hidden[static_cast<size_t>(i)]);
  }
  [[nodiscard]] bool has_nulls() const {
    if (!hidden.empty()) return true;
    for (int64_t i = 0; values->has_nulls && i < count; ++i) {
      if (!values->is_valid(first + i)) return true;
    }
    return false;
  }
};

template <typename T>
void put(std::byte* out, int64_t i, T value) {
  std::memcpy(out + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

void put_nan(std::byte* out, int64_t i, int type_number) {
  if (type_number == NPY_HALF) {
    put(out, i, uint16_t{0x7E00});
  } else if (type_number == NPY_FLOAT) {
    put(out, i, std::nanf(""));
  } else {
    put(out, i, std::nan(""));
  }
}

// Nested lists of plain objects, None where null.
py::object nested_lists(const Piece& piece, const std::vector<npy_intp>& shape, size_t axis, int64_t& at) {
  if (axis == shape.size()) {
    const int64_t i = at++;
    return piece.is_valid(i) ? plain_value(*piece.values, piece.first + i) : py::object(py::none());
  }
  py::list list;
  for (npy_intp i = 0; i < shape[axis]; ++i) list.append(nested_lists(piece, shape, axis + 1, at));
  return list;
}

// A copy as a new array; nulls become NaN where the type has it, else the result are nested lists.
py::object copied_values(const Piece& piece, const Form& form, std::vector<npy_intp> shape) {
  const bool any_null = piece.has_nulls();
  if (any_null && !PyTypeNum_ISFLOAT(form.type_number)) {
    int64_t at = 0;
    return nested_lists(piece, shape, 0, at);
  }
  py::object array = py::reinterpret_steal<py::object>(
      PyArray_SimpleNew(static_cast<int>(shape.size()), shape.data(), form.type_number));
  if (!array) throw py::error_already_set();
  auto* const numpy = reinterpret_cast<PyArrayObject*>(array.ptr());
  auto* const out = static_cast<std::byte*>(PyArray_DATA(numpy));
  const auto width = static_cast<size_t>(PyArray_ITEMSIZE(numpy));
  if (piece.count != 0) {
    std::memcpy(out, piece.values->data.data() + static_cast<size_t>(piece.first) * width,
                static_cast<size_t>(piece.count) * width);
  }
  for (int64_t i = 0; any_null && i < piece.count; ++i) {
    if (!piece.is_valid(i)) put_nan(out, i, form.type_number);
  }
  return array;
}

py::object one_scalar(const Column& column, int64_t row, const Form& form) {
  if (!column.is_valid(row) && !PyTypeNum_ISFLOAT(form.type_number)) return py::none();
  py::object array = copied_values({&column, row, 1, {}}, form, {});
  return py::reinterpret_steal<py::object>(PyArray_Return(reinterpret_cast<PyArrayObject*>(array.release().ptr())));
}

py::object one_array(const Column& column, int64_t row, const Form& form) {
  if (!column.is_valid(row)) return py::none();
  Piece piece{&column, row, 1, {}};
  while (piece.values->field->layout != Layout::kFixed && piece.values->field->layout != Layout::kBits) {
    const Column& outer = *piece.values;
    int64_t size = outer.field->list_size;
    if (is_list(*outer.field)) {  // the column itself: one list
      size = outer.size(row);
      if (size != form.list_length) {
        throw Error(ErrorKind::kCorrupt, "list_length",
                    "column '" + column.field->name + "' has a list of " + std::to_string(size) +
                        " values, the index says all have " + std::to_string(form.list_length));
      }
    }
    std::vector<bool> hidden;
    if (&outer != &column && piece.has_nulls()) {
      hidden.resize(static_cast<size_t>(piece.count * size));
      for (int64_t i = 0; i < piece.count * size; ++i) hidden[static_cast<size_t>(i)] = !piece.is_valid(i / size);
    }
    const int64_t first = is_list(*outer.field) ? outer.begin(row) : piece.first * size;
    piece = {&outer.children[0], first, piece.count * size, std::move(hidden)};
  }
  return copied_values(piece, form, form.shape);
}

py::object one_tensor(const Column& column, int64_t row, const Form& form) {
  const Column& data = column.children[form.data];
  const Column& shapes = column.children[form.shapes];
  const Column& sizes = shapes.children[0];
  if (!column.is_valid(row) || !data.is_valid(row) || !shapes.is_valid(row)) return py::none();
  const int64_t dimensions = shapes.field->list_size;
  std::vector<npy_intp> shape;
  int64_t product = 1;
  for (int64_t i = row * dimensions; i < (row + 1) * dimensions; ++i) {
    if (!sizes.is_valid(i)) return py::none();
    const auto size = load<int32_t>(sizes.data.data() + i * 4);
    shape.push_back(size);
    if (size < 0 || !checked_multiply(product, size, product)) product = -1;
  }
  if (product != data.size(row)) {
    throw Error(ErrorKind::kCorrupt, "tensor_shape",
                "column '" + column.field->name + "' has a tensor of " + std::to_string(data.size(row)) +
                    " values whose shape says " + std::to_string(product));
  }
  return copied_values({&data.children[0], data.begin(row), data.size(row), {}}, form, std::move(shape));
}

py::object one_list(const Column& column, int64_t row, const Form& form) {
  if (!column.is_valid(row)) return py::none();
  const int64_t size = column.size(row);
  return copied_values({&column.children[0], column.begin(row), size, {}}, form, {static_cast<npy_intp>(size)});
}

py::object one_view(const Column& column, int64_t row) {
  if (!column.is_valid(row)) return py::none();
  const bool has_offsets = !column.offsets.empty();
  npy_intp size = has_offsets ? column.size(row) : column.field->byte_width;
  const std::byte* const at = column.data.data() + (has_offsets ? column.begin(row) : row * size);
  py::object array = py::reinterpret_steal<py::object>(PyArray_SimpleNew(1, &size, NPY_UINT8));
  if (!array) throw py::error_already_set();
  if (size != 0)
    std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())), at, static_cast<size_t>(size));
  return array;
}

py::object one_struct(const Column& column, int64_t row, const Form& form) {
  if (!column.is_valid(row)) return py::none();
  py::dict dict;
  for (size_t i = 0; i < form.children.size(); ++i)
    dict[form.names[i]] = one_value(column.children[i], row, form.children[i]);
  return dict;
}

}  // namespace

py::object one_value(const Column& column, int64_t row, const Form& form) {
  switch (form.kind) {
    case FormKind::kArray: return form.shape.empty() ? one_scalar(column, row, form) : one_array(column, row, form);
    case FormKind::kRagged: return one_list(column, row, form);
    case FormKind::kPadded:  // a sample has its length beside it: fastshard/delivery.py makes both of a batch of one
      throw Error(ErrorKind::kInvalid, "column '" + column.field->name + "' is padded in batches alone");
    case FormKind::kViews: return one_view(column, row);
    case FormKind::kTensors: return one_tensor(column, row, form);
    case FormKind::kStruct: return one_struct(column, row, form);
    case FormKind::kText:
    case FormKind::kBytes:
    case FormKind::kObject: break;
  }
  return plain_value(column, row);
}

}  // namespace fastshard::bindings
