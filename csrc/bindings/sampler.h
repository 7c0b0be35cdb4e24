// One sample at a time, as fast as Python allows: a bare C function instead of a bound method, and rows of constant
// width copied from the mapping straight into NumPy objects.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/forms.h"
#include "pipeline/shard_set.h"

namespace fastshard::bindings {

struct Projection {
  std::vector<uint32_t> columns;
  std::vector<Form> forms;
  std::vector<pipeline::Padding> paddings;  // one for each column
  std::vector<pybind11::str> names;
};

// "never", "once" or "always". Throws Error(kInvalid).
[[nodiscard]] pipeline::Verify parse_verify(const std::string& name);

// The columns of samples `ids` as Python gets them: what `whole_column` makes of each. Throws Error that names the
// sample and its shard. With `tensors`, of the columns that it names.
[[nodiscard]] pybind11::list whole_columns(const pipeline::ShardSet& set, const Projection& projection,
                                           std::span<const int64_t> ids, std::vector<pipeline::Column> columns,
                                           const Tensors* tensors = nullptr);

// A callable: int -> dict. Negative ids count from the end; others that are not there raise OutOfRangeError.
[[nodiscard]] pybind11::object make_sampler(std::shared_ptr<pipeline::ShardSet> set,
                                            std::shared_ptr<Projection> projection);

}  // namespace fastshard::bindings
