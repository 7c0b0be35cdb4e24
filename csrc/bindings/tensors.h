// Gathered buffers as torch tensors, by DLPack: without a NumPy array in between. Every function here needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "bindings/numpy_api.h"
#include "pipeline/buffer.h"

namespace fastshard::bindings {

struct Tensors {
  pybind11::object from_dlpack;  // torch's: a capsule -> a tensor
  std::vector<bool> columns;     // which columns of a projection may be tensors
  bool ready = false;            // whether what comes of the columns is what a batch holds, once they are tensors
};

// A tensor [*shape] that owns `buffer`; its memory goes back to the pool with the last view of it, in whatever thread.
// A NumPy array where the buffer is empty or torch has known the type for a short time only.
[[nodiscard]] pybind11::object tensor_or_array(const Tensors& tensors, pipeline::Buffer buffer, int type_number,
                                               const std::vector<npy_intp>& shape);

// The same as an array.
[[nodiscard]] pybind11::object owning_array(pipeline::Buffer buffer, int type_number,
                                            const std::vector<npy_intp>& shape);

}  // namespace fastshard::bindings
