// NumPy arrays for the bindings.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <vector>

#include "base/bytes.h"

namespace fastshard::bindings {

// A copy of `values` as an array of the same length.
template <typename T>
pybind11::array_t<T> to_array(const std::vector<T>& values) {
  pybind11::array_t<T> array(static_cast<pybind11::ssize_t>(values.size()));
  if (!values.empty()) std::memcpy(array.mutable_data(), values.data(), values.size() * sizeof(T));
  return array;
}

// A contiguous buffer as bytes; throws TypeError or BufferError as Python does.
class BufferView {
 public:
  explicit BufferView(const pybind11::object& object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS) != 0) throw pybind11::error_already_set();
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  [[nodiscard]] ByteSpan bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

inline pybind11::bytes to_bytes(ByteSpan bytes) {
  return pybind11::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace fastshard::bindings
