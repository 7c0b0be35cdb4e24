#define FASTSHARD_IMPORTS_NUMPY
#include "bindings/numpy_api.h"
#include "bindings/register.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native core of fastshard. Private: use the Python package.";
  if (_import_array() < 0) throw pybind11::error_already_set();
  fastshard::bindings::register_errors(module);
  fastshard::bindings::register_ipc(module);
  fastshard::bindings::register_io(module);
  fastshard::bindings::register_order(module);
  fastshard::bindings::register_selection(module);
  fastshard::bindings::register_pipeline(module);
  fastshard::bindings::register_stream(module);
  fastshard::bindings::register_shared(module);
}
