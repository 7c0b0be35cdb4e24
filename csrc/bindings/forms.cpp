#include "bindings/forms.h"

#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using ipc::Field;
using ipc::Layout;
using ipc::Type;

[[noreturn]] void misfit(const Field& field, const char* form) {
  throw Error(ErrorKind::kInvalid,
              "column '" + field.name + "' of type " + field.type_name() + " cannot be shown as " + form);
}

// Which child of a struct is named so; its place, or -1.
int child_named(const Field& field, std::string_view name) {
  for (size_t i = 0; i < field.children.size(); ++i) {
    if (field.children[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

void fit_tensors(Form& form, const Field& field) {
  const int data = child_named(field, "data");
  const int shape = child_named(field, "shape");
  if (field.layout != Layout::kStruct || data < 0 || shape < 0) misfit(field, "tensors of varying shape");
  form.data = static_cast<size_t>(data);
  form.shapes = static_cast<size_t>(shape);
  const Field& values = field.children[form.data];
  const Field& sizes = field.children[form.shapes];
  const bool fits = is_list(values) && numpy_type(values.children[0]) != NPY_VOID &&
                    sizes.layout == Layout::kFixedList && sizes.children[0].type == Type::kInt32;
  if (!fits) misfit(field, "tensors of varying shape");
  form.type_number = numpy_type(values.children[0]);
}

const Field& innermost_field(const Field& field) {
  return is_list(field) || field.layout == Layout::kFixedList ? innermost_field(field.children[0]) : field;
}

// Sets what the form needs to know beyond its shape: how long the lists are that it is made of.
void fit_shape(Form& form, const Field& field) {
  int64_t product = 1;
  for (const npy_intp size : form.shape) {
    if (size < 0 || !checked_multiply(product, size, product)) misfit(field, "an array of that shape");
  }
  const bool has_list = is_list(field);
  int64_t fixed = 1;
  for (const Field* inner = has_list ? &field.children[0] : &field; inner->layout != Layout::kFixed;
       inner = &inner->children[0]) {
    if (inner->layout == Layout::kBits) break;
    if (inner->layout != Layout::kFixedList || form.shape.empty()) misfit(field, "an array");
    if (!checked_multiply(fixed, inner->list_size, fixed)) misfit(field, "an array: it is too large");
  }
  if (!has_list) {
    if (product != fixed) misfit(field, "an array of that shape");
    return;
  }
  if (form.shape.empty() || (fixed == 0 ? product != 0 : product % fixed != 0)) misfit(field, "an array of that shape");
  // Where a row has no values its lists are as long as the shape says.
  form.list_length = fixed == 0 ? form.shape[0] : product / fixed;
}

// `spec` is (length, truncates, one element as bytes).
void fit_padding(Form& form, const Field& field, const py::tuple& spec) {
  pipeline::Padding& padding = form.padding;
  padding.length = spec[0].cast<int64_t>();
  padding.truncates = spec[1].cast<bool>();
  const auto value = spec[2].cast<std::string>();
  const Field& inner = field.children[0];
  const size_t width = inner.layout == Layout::kFixed ? static_cast<size_t>(inner.byte_width) : 1;
  if (padding.length < 0 || value.size() != width || width > padding.value.size())
    misfit(field, "rows of that length and value");
  std::memcpy(padding.value.data(), value.data(), width);
}

}  // namespace

bool is_list(const Field& field) {
  return field.layout == Layout::kList32 || field.layout == Layout::kList64 || field.layout == Layout::kListView32 ||
         field.layout == Layout::kListView64;
}

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
    fit_shape(form, field);
  } else if (kind == "text") {
    form.kind = FormKind::kText;
    if (!field.is_text()) misfit(field, "text");
  } else if (kind == "bytes" || kind == "views") {
    form.kind = kind == "bytes" ? FormKind::kBytes : FormKind::kViews;
    const bool binary = field.layout == Layout::kBinary32 || field.layout == Layout::kBinary64 ||
                        field.layout == Layout::kBinaryView || field.type == Type::kFixedBinary;
    if (!binary) misfit(field, "bytes");
  } else if (kind == "ragged") {
    form.kind = FormKind::kRagged;
    if (!is_list(field)) misfit(field, "a ragged array");
    form.type_number = numpy_type(field.children[0]);
    if (form.type_number == NPY_VOID) misfit(field, "a ragged array");
  } else if (kind == "padded") {
    form.kind = FormKind::kPadded;
    if (!is_list(field)) misfit(field, "rows of one length");
    form.type_number = numpy_type(field.children[0]);
    if (form.type_number == NPY_VOID) misfit(field, "rows of one length");
    fit_padding(form, field, py::reinterpret_borrow<py::tuple>(parts[1]));
  } else if (kind == "tensors") {
    form.kind = FormKind::kTensors;
    fit_tensors(form, field);
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

}  // namespace fastshard::bindings
