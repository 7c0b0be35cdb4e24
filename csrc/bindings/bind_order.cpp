#include <pybind11/pybind11.h>

#include "bindings/register.h"

namespace fastshard::bindings {

void register_order(pybind11::module_&) {}

}  // namespace fastshard::bindings
