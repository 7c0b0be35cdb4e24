// One sample at a time, as fast as Python allows: a bare C function instead of a bound method, and rows of constant
// width copied from the mapping straight into NumPy objects.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "bindings/forms.h"
#include "pipeline/shard_set.h"

namespace fastshard::bindings {

struct Projection {
  std::vector<uint32_t> columns;
  std::vector<Form> forms;
  std::vector<pybind11::str> names;
};

// A callable: int -> dict. Negative ids count from the end; others that are not there raise OutOfRangeError.
[[nodiscard]] pybind11::object make_sampler(std::shared_ptr<pipeline::ShardSet> set,
                                            std::shared_ptr<Projection> projection);

}  // namespace fastshard::bindings
