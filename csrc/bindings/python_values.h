// A value of any type as plain Python objects: int, float, bool, str, bytes, Decimal, list, dict, list of pairs for a
// map, None.
#pragma once

#include <pybind11/pybind11.h>

#include "pipeline/column.h"

namespace fastshard::bindings {

[[nodiscard]] pybind11::object plain_value(const pipeline::Column& column, int64_t row);

}  // namespace fastshard::bindings
