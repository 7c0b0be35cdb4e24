// What Python gets for a gathered column. Python chooses the form of each column (fastshard/forms.py, docs/types.md);
// this file only makes the objects. Every function here needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/numpy_api.h"
#include "pipeline/column.h"
#include "pipeline/pad.h"

namespace fastshard::bindings {

struct Tensors;

enum class FormKind {
  kArray,    // ndarray [n, *shape]
  kText,     // list of str | None
  kBytes,    // list of bytes | None
  kViews,    // list of uint8 arrays that share one buffer | None
  kRagged,   // values and offsets
  kPadded,   // ndarray [n, length] and lengths: lists as rows of one length
  kStruct,   // dict of forms
  kTensors,  // values, offsets and shapes: arrays of varying shape
  kObject,   // list of plain Python objects
};

struct Form {
  FormKind kind = FormKind::kObject;
  std::vector<npy_intp> shape;       // kArray: of one row
  std::vector<Form> children;        // kStruct
  std::vector<pybind11::str> names;  // kStruct
  int type_number = NPY_VOID;        // kArray, kRagged, kPadded, kTensors: of the innermost values
  pipeline::Padding padding;         // kPadded
  int64_t list_length = 0;           // kArray of a list column: of each list
  size_t data = 0;                   // kTensors: which child holds the values,
  size_t shapes = 0;                 // and which the shapes
};

// The file vanished under values that were left in its mapping.
class VanishedError : public Error {
 public:
  VanishedError() : Error(ErrorKind::kIo, "vanished", "a file was cut short while it was read") {}
};

// An error about one row of a gathered column: whoever knows the rows' ids says which sample it is.
class RowError : public Error {
 public:
  RowError(int64_t row, const Error& error) : Error(error), row_(row) {}
  RowError(int64_t row, std::string code, const std::string& message)
      : Error(ErrorKind::kCorrupt, std::move(code), message), row_(row) {}
  [[nodiscard]] int64_t row() const noexcept { return row_; }

 private:
  int64_t row_;
};

// Lists of varying length, maps among them.
[[nodiscard]] bool is_list(const ipc::Field& field);

// `spec` is a tuple (kind, shape | None, children | None) with children a tuple of (name, spec); of "padded" its second
// is (length, truncates, one element as bytes). Throws Error(kInvalid) where the form cannot show the field.
[[nodiscard]] Form parse_form(const pybind11::handle& spec, const ipc::Field& field);

// The NumPy type number of a field's values, or NPY_VOID where they have none.
[[nodiscard]] int numpy_type(const ipc::Field& field);

// A whole column. kArray: array, or (array, valid | None, element_valid | None) where there are nulls; kRagged:
// (values, offsets, valid | None, element_valid | None); kPadded: (array, lengths, valid | None, element_valid | None),
// of a column that `pipeline::pad` went over; kTensors: (values, offsets, shapes, valid | None,
// element_valid | None); kStruct: (dict, valid | None); others a list. Masks are bool arrays, True where valid; that of
// elements has their shape, and says nothing of rows that are null as a whole. Memory moves from the column into the
// arrays; values that were left where they are (kBytes) are copied with the GIL released. With `tensors` the arrays of
// kArray and kRagged without nulls are tensors, where torch has the type. Throws RowError.
[[nodiscard]] pybind11::object whole_column(pipeline::Column column, const Form& form,
                                            const Tensors* tensors = nullptr);

// Row `row` of a column as a sample holds it: NumPy scalar, ndarray, str, bytes, dict, list, ..., None or NaN for null.
// Throws Error.
[[nodiscard]] pybind11::object one_value(const pipeline::Column& column, int64_t row, const Form& form);

}  // namespace fastshard::bindings
