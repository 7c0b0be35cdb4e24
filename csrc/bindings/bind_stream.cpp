// The native pipeline: finished batches in the order of a plan.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "bindings/arrays.h"
#include "bindings/engines.h"
#include "bindings/forms.h"
#include "bindings/order_objects.h"
#include "bindings/register.h"
#include "bindings/sampler.h"
#include "bindings/tensors.h"
#include "pipeline/batch_stream.h"
#include "pipeline/stage_times.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using pipeline::BatchStream;
using pipeline::FinishedBatch;
using pipeline::NextStatus;
using pipeline::ShardSet;

constexpr auto kPatience = std::chrono::seconds(2);     // with storage, after a signal
constexpr auto kSlice = std::chrono::milliseconds(50);  // between looks for Ctrl-C

// Columns whose values become objects of their own: these are copied from where they are.
std::vector<bool> left_of(const Projection& projection) {
  std::vector<bool> left;
  for (const Form& form : projection.forms) left.push_back(form.kind == FormKind::kBytes);
  return left;
}

// Lets malloc keep what the bytes objects of a batch took, for those of the next: else glibc returns it each time, and
// every page is faulted in anew, which costs as much as the copy. It adapts to the largest piece that was ever freed.
void expect_freed(size_t bytes) {
  constexpr size_t kAdaptsUpTo = size_t{30} << 20;
  void* const piece = std::malloc(std::min(bytes, kAdaptsUpTo));
  asm volatile("" : : "r"(piece) : "memory");  // the two calls are not one that does nothing
  std::free(piece);
}

// A stream and the forms in which Python wants its columns.
struct PythonStream {
  PythonStream(std::shared_ptr<ShardSet> shards, pipeline::BatchPlan plan, std::shared_ptr<Projection> columns,
               std::optional<Tensors> as_tensors, BatchStream::Options options,
               std::unique_ptr<pipeline::ReadSource> source)
      : set(std::move(shards)),
        projection(std::move(columns)),
        tensors(std::move(as_tensors)),
        stream(set, std::move(plan), {projection->columns, projection->paddings, left_of(*projection)}, options,
               std::move(source)) {}
  std::shared_ptr<ShardSet> set;
  std::shared_ptr<Projection> projection;
  std::optional<Tensors> tensors;
  BatchStream stream;
  int64_t objects_ns = 0;  // making Python's objects of batches
};

// Which samples a batch holds. Most batches are never asked, so arrays are made for those that are.
struct PlannedSamples {
  pipeline::PlannedBatch planned;
};

// An array over integers below 2^63 that live as long as `owner`.
template <typename T>
py::object view_integers(const std::vector<T>& values, const py::object& owner) {
  static_assert(sizeof(T) == sizeof(int64_t));
  return py::array_t<int64_t>(static_cast<py::ssize_t>(values.size()), reinterpret_cast<const int64_t*>(values.data()),
                              owner);
}

// How bytes are read: engine ("uring" or "threads"), depth, io_threads, direct, verify, budget, ahead, visits,
// read_timeout_ns.
std::unique_ptr<pipeline::ReadSource> make_source(const std::shared_ptr<ShardSet>& set, const Projection& projection,
                                                  const py::dict& reading) {
  pipeline::ReadSourceOptions options;
  options.queue.depth = std::max(1U, reading["depth"].cast<uint32_t>());
  options.queue.direct = reading["direct"].cast<bool>();
  options.queue.read_timeout = std::chrono::nanoseconds(reading["read_timeout_ns"].cast<int64_t>());
  options.blocks.verify = parse_verify(reading["verify"].cast<std::string>());
  options.blocks.budget_bytes = reading["budget"].cast<size_t>();
  options.blocks.ahead_bytes = reading["ahead"].cast<size_t>();
  options.visits = reading["visits"].cast<double>();
  std::unique_ptr<io::ReadEngine> engine =
      make_engine(reading["engine"].cast<std::string>(), options.queue.depth, reading["io_threads"].cast<uint32_t>());
  return std::make_unique<pipeline::ReadSource>(set, projection.columns, std::move(engine), options);
}

std::shared_ptr<PythonStream> make_stream(const std::shared_ptr<ShardSet>& set,
                                          const std::shared_ptr<Projection>& projection,
                                          const std::shared_ptr<SharedEpochOrder>& order,
                                          const order::Partition& partition, uint64_t first, uint64_t step,
                                          std::shared_ptr<order::Selection> selection, uint32_t threads,
                                          uint32_t prefetch, bool keep_going, bool patient, const py::object& reading,
                                          std::shared_ptr<pipeline::SharedPool> shared, size_t batch_bytes,
                                          const py::object& tensors, uint32_t advise, bool scattered) {
  if (step == 0 || threads == 0 || prefetch == 0)
    throw Error(ErrorKind::kInvalid, "step, threads and prefetch are at least 1");
  if (selection && selection->size() < order->order.size()) {
    throw Error(ErrorKind::kInvalid, "the order is of more samples than the view has");
  }
  const std::shared_ptr<const order::EpochOrder> pure(order, &order->order);
  pipeline::BatchPlan plan(pure, partition, first, step, std::move(selection));
  std::unique_ptr<pipeline::ReadSource> source =
      reading.is_none() ? nullptr : make_source(set, *projection, reading.cast<py::dict>());
  std::optional<Tensors> as_tensors;
  if (!tensors.is_none()) {
    const auto parts = py::reinterpret_borrow<py::tuple>(tensors);
    as_tensors = {parts[0], parts[1].cast<std::vector<bool>>(), parts[2].cast<bool>()};
    if (as_tensors->columns.size() != projection->columns.size())
      throw Error(ErrorKind::kInvalid, "tensors says of each column whether it is one");
  }
  const std::vector<bool> left = left_of(*projection);
  if (std::find(left.begin(), left.end(), true) != left.end()) expect_freed(2 * batch_bytes);
  const py::gil_scoped_release release;
  const BatchStream::Options options{.threads = threads,
                                     .prefetch = prefetch,
                                     .keep_going = keep_going,
                                     .patient = patient,
                                     .advise = advise,
                                     .scattered = scattered,
                                     .shared = std::move(shared),
                                     .batch_bytes = batch_bytes};
  return std::make_shared<PythonStream>(set, std::move(plan), projection, std::move(as_tensors), options,
                                        std::move(source));
}

[[noreturn]] void throw_late(PythonStream& self, double timeout) {
  const std::string missing = self.stream.awaited();
  self.stream.give_up(std::chrono::seconds(0));
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%g", timeout);
  throw Error(ErrorKind::kTimeout, "read_timeout",
              (missing.empty() ? "a batch whose bytes are in memory" : missing) + " did not come within " + seconds +
                  " s (attempt 1); raise read_timeout= or look at the storage");
}

// What a batch holds as a dict, where it takes nothing more than that; else the columns as `whole_columns` makes them.
py::object make_columns(const PythonStream& self, FinishedBatch& batch) {
  const Tensors* const tensors = self.tensors ? &*self.tensors : nullptr;
  py::list columns = whole_columns(*self.set, *self.projection, batch.planned.ids, std::move(batch.columns), tensors);
  if (tensors == nullptr || !tensors->ready) return columns;
  const size_t count = self.projection->names.size();
  for (size_t i = 0; i < count; ++i) {
    PyObject* const column = PyList_GET_ITEM(columns.ptr(), static_cast<py::ssize_t>(i));
    if (PyTuple_Check(column) || PyArray_Check(column)) return columns;  // with nulls, or no tensor
  }
  py::dict dict;
  for (size_t i = 0; i < count; ++i) {
    PyObject* const column = PyList_GET_ITEM(columns.ptr(), static_cast<py::ssize_t>(i));
    if (PyDict_SetItem(dict.ptr(), self.projection->names[i].ptr(), column) != 0) throw py::error_already_set();
  }
  return dict;
}

// The same where a file vanished under what was left in its mapping: reading again says which, or there is no harm.
py::object read_again(const PythonStream& self, FinishedBatch& batch) {
  {
    const py::gil_scoped_release release;
    batch.columns = self.set->take(batch.planned.ids, self.projection->columns);
    pipeline::pad(batch.columns, self.projection->paddings, batch.planned.ids, self.set->table(), self.set->pool());
  }
  return make_columns(self, batch);
}

// (columns, samples, repeats, shared), or None at the end. Waits with the GIL released and looks for signals.
py::object next(PythonStream& self, double timeout) {
  FinishedBatch batch;
  if (!self.stream.take_ready(batch)) {
    const auto deadline =
        timeout < 0 ? pipeline::Deadline::max()
                    : std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout));
    NextStatus status = NextStatus::kTimedOut;
    for (;;) {
      {
        const py::gil_scoped_release release;
        status = self.stream.next(batch, std::min(deadline, std::chrono::steady_clock::now() + kSlice));
      }
      if (status != NextStatus::kTimedOut) break;
      if (PyErr_CheckSignals() != 0) {
        self.stream.give_up(kPatience);  // mostly Ctrl-C: it may come because storage does not answer
        throw py::error_already_set();
      }
      if (std::chrono::steady_clock::now() >= deadline) throw_late(self, timeout);
    }
    if (status == NextStatus::kEnd) return py::none();
  }
  const pipeline::StageClock clock(self.objects_ns);
  py::object columns;
  try {
    columns = make_columns(self, batch);
  } catch (const VanishedError&) {
    columns = read_again(self, batch);
  }
  const uint64_t repeats = batch.planned.repeats;
  return py::make_tuple(std::move(columns), std::make_unique<PlannedSamples>(PlannedSamples{std::move(batch.planned)}),
                        repeats, std::move(batch.shared));
}

py::dict stats(const PythonStream& self) {
  const pipeline::StreamStats stats = self.stream.stats();
  py::dict dict;
  dict["batches"] = stats.batches;
  dict["samples"] = stats.samples;
  dict["ready"] = stats.ready;
  dict["wait_ns"] = stats.wait_ns;
  dict["plan_ns"] = stats.plan_ns;
  dict["read_ns"] = stats.read_ns;
  dict["decode_ns"] = stats.decode_ns;
  dict["gather_ns"] = stats.gather_ns;
  dict["objects_ns"] = self.objects_ns;
  dict["idle_ns"] = stats.idle_ns;
  dict["advised"] = stats.advised;
  const pipeline::ReadStats read = self.stream.read_stats();
  dict["reads"] = read.queue.reads;
  dict["bytes_read"] = read.queue.bytes_read;
  dict["buffered_files"] = read.queue.buffered_files;
  dict["registered_reads"] = read.queue.registered_reads;
  dict["rows_read"] = read.rows_read;
  dict["blocks_read"] = read.blocks.blocks_read;
  dict["partial_blocks"] = read.blocks.partial_blocks;
  dict["blocks_read_again"] = read.blocks.blocks_read_again;
  dict["blocks_used_again"] = read.blocks.blocks_used_again;
  dict["held_bytes"] = read.blocks.held_bytes;
  return dict;
}

}  // namespace

void register_stream(py::module_& module) {
  py::class_<PlannedSamples>(module, "PlannedSamples")
      .def("__len__", [](const PlannedSamples& self) { return self.planned.ids.size(); })
      .def(
          "ids", [](const py::object& self) { return view_integers(self.cast<PlannedSamples&>().planned.ids, self); },
          "int64 [n].")
      .def(
          "positions",
          [](const py::object& self) { return view_integers(self.cast<PlannedSamples&>().planned.positions, self); },
          "int64 [n].");
  py::class_<PythonStream, std::shared_ptr<PythonStream>>(module, "BatchStream")
      .def(py::init(&make_stream), py::kw_only(), py::arg("set"), py::arg("projection"), py::arg("order"),
           py::arg("partition"), py::arg("first"), py::arg("step"), py::arg("selection"), py::arg("threads"),
           py::arg("prefetch"), py::arg("keep_going") = false, py::arg("patient") = true,
           py::arg("reading") = py::none(), py::arg("shared") = py::none(), py::arg("batch_bytes") = 0,
           py::arg("tensors") = py::none(), py::arg("advise") = 0, py::arg("scattered") = false)
      .def("next", &next, py::arg("timeout"))
      .def(
          "stop", [](PythonStream& self) { self.stream.stop(); }, py::call_guard<py::gil_scoped_release>())
      .def("stats", &stats);
}

}  // namespace fastshard::bindings
