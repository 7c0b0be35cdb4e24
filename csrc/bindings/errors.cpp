// The one place where native errors become Python exceptions.
#include <pybind11/pybind11.h>

#include "base/error.h"
#include "bindings/register.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kCorrupt: return "CorruptError";
    case ErrorKind::kUnsupported: return "UnsupportedError";
    case ErrorKind::kIo: return "StorageError";
    case ErrorKind::kNotFound: return "NotFoundError";
    case ErrorKind::kTimeout: return "ReadTimeoutError";
    case ErrorKind::kInvalid: return "InvalidError";
    case ErrorKind::kOutOfRange: return "OutOfRangeError";
  }
  return "Error";
}

}  // namespace

void set_python_error(const Error& error) {
  // The classes live in fastshard/errors.py, so that they read and pickle as ordinary Python.
  try {
    py::object type = py::module_::import("fastshard.errors").attr(class_name(error.kind()));
    // What comes from a file may not be UTF-8.
    const std::string_view text = error.what();
    py::object value = type(py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace")));
    value.attr("code") = error.code();
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (py::error_already_set& failure) {
    failure.restore();
  }
}

void register_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      set_python_error(error);
    }
  });
}

}  // namespace fastshard::bindings
