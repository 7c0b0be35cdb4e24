// Statistics of columns as Python gets them.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "pipeline/file_index.h"

namespace fastshard::bindings {

// A list of (null_count, child_null_count, min_length | None, max_length | None), one for each column.
inline pybind11::list column_stats(const std::vector<pipeline::ColumnStats>& columns) {
  namespace py = pybind11;
  const auto length_or_none = [](int64_t length) {
    return length < 0 ? py::object(py::none()) : py::object(py::int_(length));
  };
  py::list stats;
  for (const pipeline::ColumnStats& column : columns) {
    stats.append(py::make_tuple(column.null_count, column.child_null_count, length_or_none(column.min_length),
                                length_or_none(column.max_length)));
  }
  return stats;
}

}  // namespace fastshard::bindings
