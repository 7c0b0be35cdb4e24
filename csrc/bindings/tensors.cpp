#include "bindings/tensors.h"

#include <cstdint>
#include <cstring>
#include <memory>

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using pipeline::Buffer;

// The structures of DLPack (github.com/dmlc/dlpack, dlpack.h) as every version since 0.2 has them.
struct DlDevice {
  int32_t type;  // 1: main memory
  int32_t id;
};
struct DlType {
  uint8_t code;  // 0: signed, 1: unsigned, 2: floating-point
  uint8_t bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t dimensions;
  DlType type;
  int64_t* shape;
  int64_t* strides;  // null: rows one after the other
  uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};

constexpr const char* kFresh = "dltensor";  // whoever takes the tensor out of a capsule renames it

// A tensor and what it owns, freed together.
struct Held {
  Held(Buffer memory, DlType type, const std::vector<npy_intp>& sizes)
      : buffer(std::move(memory)), shape(sizes.begin(), sizes.end()) {
    managed.tensor = {buffer.data(), {1, 0}, static_cast<int32_t>(shape.size()), type, shape.data(), nullptr, 0};
    managed.context = this;
    managed.deleter = [](DlManagedTensor* self) { delete static_cast<Held*>(self->context); };
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Buffer buffer;
  std::vector<int64_t> shape;
  DlManagedTensor managed{};
};

void drop(PyObject* capsule) {
  if (std::strcmp(PyCapsule_GetName(capsule), kFresh) != 0) return;  // the tensor owns it
  auto* const managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, kFresh));
  managed->deleter(managed);
}

// Types that torch has taken by DLPack since it has DLPack; bits 0 for others.
DlType type_of(int number) {
  switch (number) {
    case NPY_INT8: return {0, 8, 1};
    case NPY_INT16: return {0, 16, 1};
    case NPY_INT32: return {0, 32, 1};
    case NPY_INT64: return {0, 64, 1};
    case NPY_UINT8: return {1, 8, 1};
    case NPY_HALF: return {2, 16, 1};
    case NPY_FLOAT: return {2, 32, 1};
    case NPY_DOUBLE: return {2, 64, 1};
    default: return {0, 0, 0};
  }
}

}  // namespace

py::object tensor_or_array(const Tensors& tensors, Buffer buffer, int type_number, const std::vector<npy_intp>& shape) {
  const DlType type = type_of(type_number);
  if (type.bits == 0 || buffer.empty()) return owning_array(std::move(buffer), type_number, shape);
  auto held = std::make_unique<Held>(std::move(buffer), type, shape);
  const auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(&held->managed, kFresh, drop));
  if (!capsule) throw py::error_already_set();
  (void)held.release();
  PyObject* const tensor = PyObject_CallOneArg(tensors.from_dlpack.ptr(), capsule.ptr());
  if (tensor == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(tensor);
}

py::object owning_array(Buffer buffer, int type_number, const std::vector<npy_intp>& shape) {
  auto* const sizes = const_cast<npy_intp*>(shape.data());  // NumPy reads them
  if (buffer.empty()) {
    PyObject* const zeros = PyArray_ZEROS(static_cast<int>(shape.size()), sizes, type_number, 0);
    if (zeros == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(zeros);
  }
  void* const data = buffer.data();
  auto held = std::make_unique<Buffer>(std::move(buffer));
  PyObject* const capsule = PyCapsule_New(
      held.get(), nullptr, [](PyObject* self) { delete static_cast<Buffer*>(PyCapsule_GetPointer(self, nullptr)); });
  if (capsule == nullptr) throw py::error_already_set();
  (void)held.release();
  PyObject* const array = PyArray_New(&PyArray_Type, static_cast<int>(shape.size()), sizes, type_number, nullptr, data,
                                      0, NPY_ARRAY_CARRAY, nullptr);
  if (array == nullptr) {
    Py_DECREF(capsule);
    throw py::error_already_set();
  }
  // Takes the capsule, also where it fails.
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), capsule) != 0) {
    Py_DECREF(array);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(array);
}

}  // namespace fastshard::bindings
