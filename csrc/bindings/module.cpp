#include <pybind11/pybind11.h>

#include "bindings/register.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native core of fastshard. Private: use the Python package.";
  fastshard::bindings::register_errors(module);
  fastshard::bindings::register_ipc(module);
  fastshard::bindings::register_order(module);
  fastshard::bindings::register_pipeline(module);
}
