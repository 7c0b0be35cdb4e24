#include "bindings/sampler.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/fault_guard.h"
#include "bindings/numpy_api.h"
#include "bindings/register.h"
#include "bindings/tensors.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using pipeline::BlockPlace;
using pipeline::Column;
using pipeline::Shard;
using pipeline::ShardSet;

constexpr size_t kSmallRow = 64;  // bytes copied to the stack first: scalars

[[noreturn]] void throw_located(const ShardSet& set, int64_t id, const Error& error) {
  const std::string_view shard = set.table().path(set.table().locate(id).shard);
  throw Error(error.kind(), error.code(), std::string(shard) + ": sample " + std::to_string(id) + ": " + error.what());
}

class Sampler {
 public:
  Sampler(std::shared_ptr<ShardSet> set, std::shared_ptr<Projection> projection)
      : set_(std::move(set)), projection_(std::move(projection)) {
    for (size_t i = 0; i < projection_->columns.size(); ++i) {
      const Form& form = projection_->forms[i];
      // What is compared anew for each sample takes the general way.
      const bool direct = form.kind == FormKind::kArray && set_->verify_mode() != pipeline::Verify::kAlways;
      const int64_t width = direct ? pipeline::plain_width(set_->schema().fields[projection_->columns[i]]) : 0;
      widths_.push_back(width);
      py::object type;
      if (width > 0)
        type = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyArray_DescrFromType(form.type_number)));
      types_.push_back(std::move(type));
    }
  }

  py::object sample(int64_t id) {
    const int64_t rows = set_->rows();
    const int64_t asked = id;
    if (id < 0) id += rows;
    if (id < 0 || id >= rows) {
      throw Error(ErrorKind::kOutOfRange,
                  "there is no sample " + std::to_string(asked) + ": the data set has " + std::to_string(rows));
    }
    const pipeline::ShardPlace place = set_->table().locate(id);
    if (!shard_ || shard_->number() != place.shard || set_->generation() != generation_) {
      generation_ = set_->generation();
      shard_ = set_->shard(place.shard);
    }
    const std::shared_ptr<Shard> held = shard_;  // another thread may move on while this one loads without the GIL
    Shard& shard = *held;
    const BlockPlace at = shard.locate(place.row);
    prefetch(shard, at);
    std::vector<size_t> places;  // of the columns that take the general way
    py::object dict = py::reinterpret_steal<py::object>(PyDict_New());
    if (!dict) throw py::error_already_set();
    for (size_t i = 0; i < widths_.size(); ++i) {
      py::object value = widths_[i] > 0 ? plain(shard, at, i) : py::object();
      if (!value) {
        places.push_back(i);
        value = py::none();  // holds the column's place in the dict
      }
      set_item(dict, i, value);
    }
    if (!places.empty()) general(id, places, dict);
    return dict;
  }

 private:
  // Lets the misses to memory of all columns run beside the making of the first objects.
  void prefetch(const Shard& shard, const BlockPlace& at) const {
    for (size_t i = 0; i < widths_.size(); ++i) {
      const std::byte* const values = widths_[i] > 0 ? shard.plain_values(at.block, projection_->columns[i]) : nullptr;
      if (values != nullptr && values != Shard::kNotPlain) __builtin_prefetch(values + at.row * widths_[i]);
    }
  }

  // Null where the block's column does not lie in the mapping as plain rows.
  py::object plain(Shard& shard, const BlockPlace& at, size_t i) {
    const uint32_t column = projection_->columns[i];
    const std::byte* values = shard.plain_values(at.block, column);
    if (values == nullptr) {
      const py::gil_scoped_release release;
      install_fault_handler();
      (void)shard.column(at.block, column, set_->cache());
      values = shard.plain_values(at.block, column);
    }
    if (values == Shard::kNotPlain) return {};
    const auto width = static_cast<size_t>(widths_[i]);
    const std::byte* const from = values + static_cast<size_t>(at.row) * width;
    const Form& form = projection_->forms[i];
    if (form.shape.empty() && width <= kSmallRow) {
      alignas(16) std::byte small[kSmallRow];
      if (!run_guarded([&] { std::memcpy(small, from, width); })) shard.throw_vanished(at.block);
      return py::reinterpret_steal<py::object>(
          PyArray_Scalar(small, reinterpret_cast<PyArray_Descr*>(types_[i].ptr()), nullptr));
    }
    Py_INCREF(types_[i].ptr());
    py::object array = py::reinterpret_steal<py::object>(PyArray_NewFromDescr(
        &PyArray_Type, reinterpret_cast<PyArray_Descr*>(types_[i].ptr()), static_cast<int>(form.shape.size()),
        const_cast<npy_intp*>(form.shape.data()), nullptr, nullptr, 0, nullptr));
    if (!array) throw py::error_already_set();
    void* const out = PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr()));
    if (!run_guarded([&] { std::memcpy(out, from, width); })) shard.throw_vanished(at.block);
    return array;
  }

  void general(int64_t id, const std::vector<size_t>& places, py::object& dict) {
    std::vector<uint32_t> numbers;
    for (const size_t i : places) numbers.push_back(projection_->columns[i]);
    std::vector<Column> columns;
    {
      const py::gil_scoped_release release;
      columns = set_->take({&id, 1}, numbers);
    }
    try {
      for (size_t k = 0; k < places.size(); ++k)
        set_item(dict, places[k], one_value(columns[k], 0, projection_->forms[places[k]]));
    } catch (const Error& error) {
      throw_located(*set_, id, error);
    }
  }

  void set_item(py::object& dict, size_t i, const py::object& value) const {
    if (PyDict_SetItem(dict.ptr(), projection_->names[i].ptr(), value.ptr()) != 0) throw py::error_already_set();
  }

  std::shared_ptr<ShardSet> set_;
  std::shared_ptr<Projection> projection_;
  std::vector<int64_t> widths_;    // bytes of one row, 0 where the column takes the general way
  std::vector<py::object> types_;  // dtypes
  std::shared_ptr<Shard> shard_;   // of the last sample
  uint64_t generation_ = 0;        // of the fork in which shard_ was opened
};

constexpr const char* kCapsuleName = "fastshard.sampler";

PyObject* call_sampler(PyObject* self, PyObject* argument) {
  try {
    auto* const sampler = static_cast<Sampler*>(PyCapsule_GetPointer(self, kCapsuleName));
    const long long id = PyLong_AsLongLong(argument);
    if (id == -1 && PyErr_Occurred() != nullptr) {
      if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) return nullptr;
      PyErr_Clear();
      throw Error(ErrorKind::kOutOfRange, "there is no sample " + std::string(py::str(argument)));
    }
    return sampler->sample(id).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const Error& error) {
    set_python_error(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyMethodDef sampler_definition = {"sample", call_sampler, METH_O, "One sample as a dict."};

}  // namespace

py::list whole_columns(const ShardSet& set, const Projection& projection, std::span<const int64_t> ids,
                       std::vector<Column> columns, const Tensors* tensors) {
  py::list out(columns.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    try {
      const bool may_be_tensor = tensors != nullptr && tensors->columns[i];
      out[i] = whole_column(std::move(columns[i]), projection.forms[i], may_be_tensor ? tensors : nullptr);
    } catch (const RowError& error) {
      throw_located(set, ids[static_cast<size_t>(error.row())], error);
    }
  }
  return out;
}

py::object make_sampler(std::shared_ptr<ShardSet> set, std::shared_ptr<Projection> projection) {
  auto* const sampler = new Sampler(std::move(set), std::move(projection));
  const py::object capsule = py::reinterpret_steal<py::object>(PyCapsule_New(sampler, kCapsuleName, [](PyObject* self) {
    delete static_cast<Sampler*>(PyCapsule_GetPointer(self, kCapsuleName));
  }));
  if (!capsule) {
    delete sampler;
    throw py::error_already_set();
  }
  PyObject* const function = PyCFunction_NewEx(&sampler_definition, capsule.ptr(), nullptr);
  if (function == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

}  // namespace fastshard::bindings
