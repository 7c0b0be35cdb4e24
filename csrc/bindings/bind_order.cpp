#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/order_objects.h"
#include "bindings/register.h"
#include "order/cursor.h"
#include "order/epoch_order.h"
#include "order/mix_schedule.h"
#include "order/partition.h"
#include "order/permutation_batch.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using Positions = py::array_t<uint64_t, py::array::c_style>;

std::string shown(const py::handle& value) { return py::repr(value).cast<std::string>(); }

// An integer from 0 to 2^64 - 1; anything with __index__.
uint64_t to_uint64(const char* name, const py::object& value) {
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) {
    PyErr_Clear();
    throw py::type_error(std::string(name) + " must be an integer, got " + shown(value));
  }
  const uint64_t result = PyLong_AsUnsignedLongLong(index.ptr());
  if (PyErr_Occurred()) {
    PyErr_Clear();
    throw Error(ErrorKind::kInvalid, std::string(name) + " must be from 0 to 2^64 - 1, got " + shown(value));
  }
  return result;
}

Positions to_positions(const py::array& positions, uint64_t size) {
  const char kind = positions.dtype().kind();
  if (kind != 'u' && kind != 'i') {
    throw py::type_error("positions must be an array of integers, got dtype " + shown(positions.dtype()));
  }
  if (positions.ndim() != 1) {
    throw Error(ErrorKind::kInvalid,
                "positions must have one dimension, got " + std::to_string(positions.ndim()) + " dimensions");
  }
  // A negative position becomes a huge one, which the next check refuses.
  Positions result = Positions::ensure(positions.attr("astype")("uint64", py::arg("copy") = false));
  const std::span<const uint64_t> values(result.data(), static_cast<size_t>(result.size()));
  const auto largest = std::max_element(values.begin(), values.end());
  if (largest != values.end() && *largest >= size) {
    throw Error(ErrorKind::kOutOfRange, "position " + std::to_string(static_cast<int64_t>(*largest)) +
                                            " is outside an order of " + std::to_string(size) + " samples");
  }
  return result;
}

std::span<const uint64_t> view(const Positions& array) { return {array.data(), static_cast<size_t>(array.size())}; }

std::span<uint64_t> mutable_view(Positions& array) { return {array.mutable_data(), static_cast<size_t>(array.size())}; }

uint64_t to_lanes(const py::object& value) {
  const uint64_t lanes = to_uint64("lanes", value);
  if (lanes == 0 || lanes > order::kMaxLanes) {
    throw Error(ErrorKind::kInvalid,
                "lanes must be from 1 to " + std::to_string(order::kMaxLanes) + ", got " + std::to_string(lanes));
  }
  return lanes;
}

order::Kernel to_kernel(const std::string& name) {
  if (name == "auto") return order::best_kernel();
  std::string known = "\"auto\"";
  for (const order::Kernel kernel : order::available_kernels()) {
    if (order::kernel_name(kernel) == name) return kernel;
    known += ", \"" + std::string(order::kernel_name(kernel)) + "\"";
  }
  throw Error(ErrorKind::kInvalid, "kernel must be one of " + known + " on this machine, got \"" + name + "\"");
}

order::Kind to_kind(const std::string& name) {
  if (name == "none") return order::Kind::kNone;
  if (name == "global") return order::Kind::kGlobal;
  if (name == "block") return order::Kind::kBlock;
  throw Error(ErrorKind::kInvalid, "kind must be \"none\", \"global\" or \"block\", got \"" + name + "\"");
}

order::Tail to_tail(const std::string& name) {
  if (name == "pad") return order::Tail::kPad;
  if (name == "drop") return order::Tail::kDrop;
  if (name == "exact") return order::Tail::kExact;
  throw Error(ErrorKind::kInvalid, "tail must be \"pad\", \"drop\" or \"exact\", got \"" + name + "\"");
}

order::Purpose to_purpose(const std::string& name) {
  if (name == "source") return order::Purpose::kSource;
  if (name == "split") return order::Purpose::kSplit;
  if (name == "weighted") return order::Purpose::kWeighted;
  throw Error(ErrorKind::kInvalid, "purpose must be \"source\", \"split\" or \"weighted\", got \"" + name + "\"");
}

void register_permutation(py::module_& module) {
  // H(purpose; words) of docs/order.md, for what Python derives itself.
  module.def("order_key", [](const std::string& purpose, const py::args& words) {
    std::vector<uint64_t> values;
    for (const py::handle word : words) {
      values.push_back(to_uint64("words", py::reinterpret_borrow<py::object>(word)));
    }
    return order::hash_words(to_purpose(purpose), values);
  });

  module.def("permutation_kernels", [] {
    py::list names;
    for (const order::Kernel kernel : order::available_kernels()) names.append(order::kernel_name(kernel));
    return names;
  });

  py::class_<order::Permutation>(module, "Permutation")
      .def(py::init([](const py::object& size, const py::object& key) {
             const uint64_t checked = to_uint64("size", size);
             if (checked > order::Permutation::kMaxSize) {
               throw Error(ErrorKind::kInvalid, "size must be at most 2^62, got " + std::to_string(checked));
             }
             return order::Permutation(checked, to_uint64("key", key));
           }),
           py::arg("size"), py::arg("key"))
      .def_property_readonly("size", &order::Permutation::size)
      .def(
          "fill",
          [](const order::Permutation& self, const py::object& first, const py::object& count,
             const std::string& kernel) {
            const uint64_t begin = to_uint64("first", first);
            const uint64_t length = to_uint64("count", count);
            if (begin > self.size() || length > self.size() - begin) {
              throw Error(ErrorKind::kOutOfRange, std::to_string(length) + " positions from " + std::to_string(begin) +
                                                      " on are outside a permutation of " +
                                                      std::to_string(self.size()));
            }
            const order::Kernel chosen = to_kernel(kernel);
            Positions ids(static_cast<py::ssize_t>(length));
            const std::span<uint64_t> out = mutable_view(ids);
            const py::gil_scoped_release unlocked;
            order::fill(self, begin, out, chosen);
            return ids;
          },
          py::arg("first"), py::arg("count"), py::kw_only(), py::arg("kernel") = "auto")
      .def(
          "at",
          [](const order::Permutation& self, const py::array& positions, const std::string& kernel) {
            const order::Kernel chosen = to_kernel(kernel);
            const Positions checked = to_positions(positions, self.size());
            Positions ids(checked.size());
            const std::span<const uint64_t> in = view(checked);
            const std::span<uint64_t> out = mutable_view(ids);
            const py::gil_scoped_release unlocked;
            order::evaluate(self, in, out, chosen);
            return ids;
          },
          py::arg("positions"), py::kw_only(), py::arg("kernel") = "auto");
}

// A column of the shard table; empty for None.
using Column = py::array_t<int64_t, py::array::c_style>;

Column to_column(const char* name, const py::object& values) {
  if (values.is_none()) return Column(0);
  const auto array = py::array::ensure(values);
  if (!array || array.ndim() != 1 || (array.dtype().kind() != 'i' && array.dtype().kind() != 'u' && array.size() > 0)) {
    throw py::type_error(std::string(name) + " must be a one-dimensional array of integers or None, got " +
                         shown(values));
  }
  return Column::ensure(array.attr("astype")("int64", py::arg("copy") = false));
}

std::span<const int64_t> view(const Column& column) { return {column.data(), static_cast<size_t>(column.size())}; }

void register_epoch_order(py::module_& module) {
  module.def(
      "default_lanes",
      [](const py::object& shard_rows, const py::object& shard_blocks, const py::object& shard_block_rows,
         const py::object& unit_blocks) {
        const Column rows = to_column("shard_rows", shard_rows);
        const Column blocks = to_column("shard_blocks", shard_blocks);
        const Column block_rows = to_column("shard_block_rows", shard_block_rows);
        const order::ShardTable shards{view(rows), view(blocks), view(block_rows)};
        const uint64_t unit = to_uint64("unit_blocks", unit_blocks);
        return order::default_lanes(order::count_units(shards, order::unit_rows(shards, unit)));
      },
      py::kw_only(), py::arg("shard_rows"), py::arg("shard_blocks"), py::arg("shard_block_rows"),
      py::arg("unit_blocks"));

  py::class_<SharedEpochOrder, std::shared_ptr<SharedEpochOrder>>(module, "EpochOrder")
      .def(py::init([](const std::string& kind, const py::object& size, const py::object& seed, const py::object& epoch,
                       const py::object& lanes, const py::object& shard_rows, const py::object& shard_blocks,
                       const py::object& shard_block_rows, const py::object& window, const py::object& unit_blocks) {
             order::OrderSpec spec;
             spec.kind = to_kind(kind);
             spec.size = to_uint64("size", size);
             spec.seed = to_uint64("seed", seed);
             spec.epoch = to_uint64("epoch", epoch);
             if (!lanes.is_none()) spec.lanes = to_uint64("lanes", lanes);
             spec.window = to_uint64("window", window);
             spec.unit_blocks = to_uint64("unit_blocks", unit_blocks);
             const Column rows = to_column("shard_rows", shard_rows);
             const Column blocks = to_column("shard_blocks", shard_blocks);
             const Column block_rows = to_column("shard_block_rows", shard_block_rows);
             const order::ShardTable shards{view(rows), view(blocks), view(block_rows)};
             const py::gil_scoped_release unlocked;
             return std::make_unique<SharedEpochOrder>(spec, shards);
           }),
           py::kw_only(), py::arg("kind"), py::arg("size"), py::arg("seed") = 0, py::arg("epoch") = 0,
           py::arg("lanes") = py::none(), py::arg("shard_rows") = py::none(), py::arg("shard_blocks") = py::none(),
           py::arg("shard_block_rows") = py::none(), py::arg("window") = 0, py::arg("unit_blocks") = 1)
      .def_property_readonly("size", [](const SharedEpochOrder& self) { return self.order.size(); })
      .def_property_readonly("lanes", [](const SharedEpochOrder& self) { return self.order.lanes(); })
      .def(
          "ids",
          [](SharedEpochOrder& self, const py::array& positions) {
            const Positions checked = to_positions(positions, self.order.size());
            Positions ids(checked.size());
            const std::span<const uint64_t> in = view(checked);
            const std::span<uint64_t> out = mutable_view(ids);
            const py::gil_scoped_release unlocked;
            self.ids(in, out);
            return ids;
          },
          py::arg("positions"));
}

py::tuple to_batch(const Positions& positions, uint64_t repeats) {
  if (repeats == 0) return py::make_tuple(positions, py::none());
  const py::ssize_t length = positions.size();
  py::array_t<bool> is_repeat(length);
  std::fill_n(is_repeat.mutable_data(), length, false);
  std::fill_n(is_repeat.mutable_data() + length - static_cast<py::ssize_t>(repeats), repeats, true);
  return py::make_tuple(positions, is_repeat);
}

void register_partition(py::module_& module) {
  py::class_<order::Partition>(module, "Partition")
      .def(py::init([](const py::object& size, const py::object& start, const py::object& lanes,
                       const py::object& batch_size, const py::object& world_size, const py::object& rank,
                       const py::object& replication, const std::string& tail) {
             return order::Partition({.size = to_uint64("size", size),
                                      .start = to_uint64("start", start),
                                      .lanes = to_uint64("lanes", lanes),
                                      .batch_size = to_uint64("batch_size", batch_size),
                                      .world_size = to_uint64("world_size", world_size),
                                      .rank = to_uint64("rank", rank),
                                      .replication = to_uint64("replication", replication),
                                      .tail = to_tail(tail)});
           }),
           py::kw_only(), py::arg("size"), py::arg("start") = 0, py::arg("lanes") = 1, py::arg("batch_size"),
           py::arg("world_size") = 1, py::arg("rank") = 0, py::arg("replication") = 1, py::arg("tail") = "pad")
      .def_property_readonly("global_batch_size", &order::Partition::global_batch_size)
      .def_property_readonly("num_batches", &order::Partition::num_batches)
      .def_property_readonly("num_samples", &order::Partition::num_samples)
      .def_property_readonly("num_repeats", &order::Partition::num_repeats)
      .def_property_readonly("num_steps", &order::Partition::num_steps)
      .def_property_readonly("num_dropped", &order::Partition::num_dropped)
      .def(
          "position_after",
          [](const order::Partition& self, const py::object& steps) {
            return self.position_after(to_uint64("steps", steps));
          },
          py::arg("steps"))
      .def(
          "batch",
          [](const order::Partition& self, const py::object& batch) -> py::tuple {
            const uint64_t index = to_uint64("batch", batch);
            if (index >= self.num_batches()) {
              throw Error(ErrorKind::kOutOfRange, "batch " + std::to_string(index) + " is outside the " +
                                                      std::to_string(self.num_batches()) + " batches of rank " +
                                                      std::to_string(self.spec().rank));
            }
            const auto length = static_cast<py::ssize_t>(self.batch_length(index));
            Positions positions(length);
            self.batch(index, mutable_view(positions));
            return to_batch(positions, self.batch_repeats(index));
          },
          py::arg("batch"));
}

void register_cursor(py::module_& module) {
  py::class_<order::Cursor>(module, "Cursor")
      .def(py::init([](const order::Partition& partition, const py::object& worker, const py::object& num_workers) {
             return order::Cursor(partition, to_uint64("worker", worker), to_uint64("num_workers", num_workers));
           }),
           py::arg("partition"), py::kw_only(), py::arg("worker") = 0, py::arg("num_workers") = 1)
      .def_property_readonly("batch", &order::Cursor::batch)
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", [](order::Cursor& self) {
        if (self.done()) throw py::stop_iteration();
        Positions positions(static_cast<py::ssize_t>(self.length()));
        self.read(mutable_view(positions));
        const uint64_t repeats = self.repeats();
        self.advance();
        return to_batch(positions, repeats);
      });
}

void register_mix_schedule(py::module_& module) {
  py::class_<order::MixSchedule>(module, "MixSchedule")
      .def(py::init([](const py::sequence& weights) {
             std::vector<uint64_t> values;
             for (const py::handle weight : weights) {
               values.push_back(to_uint64("weights", py::reinterpret_borrow<py::object>(weight)));
             }
             return order::MixSchedule(values);
           }),
           py::arg("weights"))
      .def_property_readonly("num_sources", &order::MixSchedule::num_sources)
      .def_property_readonly("period", &order::MixSchedule::period)
      .def(
          "locate",
          [](const order::MixSchedule& self, const py::array& positions, const py::object& lanes) {
            const uint64_t lane_count = to_lanes(lanes);
            const Positions checked = to_positions(positions, order::Permutation::kMaxSize);
            py::array_t<uint32_t> sources(checked.size());
            Positions own(checked.size());
            const std::span<uint32_t> source(sources.mutable_data(), static_cast<size_t>(sources.size()));
            const std::span<uint64_t> out = mutable_view(own);
            {
              const py::gil_scoped_release unlocked;
              self.locate(view(checked), lane_count, source, out);
            }
            return py::make_tuple(sources, own);
          },
          py::arg("positions"), py::kw_only(), py::arg("lanes") = 1)
      .def(
          "count",
          [](const order::MixSchedule& self, const py::object& end, const py::object& lanes) {
            Positions counts(static_cast<py::ssize_t>(self.num_sources()));
            self.count(to_uint64("end", end), to_lanes(lanes), mutable_view(counts));
            return counts;
          },
          py::arg("end"), py::kw_only(), py::arg("lanes") = 1);
}

}  // namespace

void register_order(py::module_& module) {
  register_permutation(module);
  register_epoch_order(module);
  register_partition(module);
  register_cursor(module);
  register_mix_schedule(module);
}

}  // namespace fastshard::bindings
