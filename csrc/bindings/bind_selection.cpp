// Selections of samples, and what divides samples by values: docs/order.md, section 8.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "bindings/arrays.h"
#include "bindings/register.h"
#include "order/mix.h"
#include "order/selection.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using order::Selection;
using order::SelectionBuilder;
using Words = py::array_t<uint64_t, py::array::c_style>;
using Ids = py::array_t<int64_t, py::array::c_style>;

static_assert(sizeof(Selection::Run) == 2 * sizeof(uint64_t));

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorKind::kInvalid, message); }

// A one-dimensional array of integers as words; a negative one becomes a huge one, which every bound refuses.
Words to_words(const char* name, const py::object& values) {
  const auto array = py::array::ensure(values);
  if (!array || array.ndim() != 1 || (array.size() > 0 && array.dtype().kind() != 'i' && array.dtype().kind() != 'u')) {
    throw py::type_error(std::string(name) + " must be a one-dimensional array of integers");
  }
  return Words::ensure(array.attr("astype")("uint64", py::arg("copy") = false));
}

std::span<const uint64_t> view(const Words& array) { return {array.data(), static_cast<size_t>(array.size())}; }

std::span<uint64_t> mutable_view(Ids& array) {
  return {reinterpret_cast<uint64_t*>(array.mutable_data()), static_cast<size_t>(array.size())};
}

Words copy_words(const std::vector<uint64_t>& values) { return to_array(values); }

Ids selected(const Selection& self, const py::object& places) {
  const Words checked = to_words("places", places);
  for (const uint64_t place : view(checked)) {
    if (place < self.size()) continue;
    throw Error(ErrorKind::kOutOfRange, "there is no sample " + std::to_string(static_cast<int64_t>(place)) +
                                            ": the view has " + std::to_string(self.size()));
  }
  Ids ids(checked.size());
  const std::span<uint64_t> out = mutable_view(ids);
  const py::gil_scoped_release unlocked;
  self.ids(view(checked), out);
  return ids;
}

Ids consecutive(const Selection& self, uint64_t first, uint64_t count) {
  if (first > self.size() || count > self.size() - first) {
    throw Error(ErrorKind::kOutOfRange, std::to_string(count) + " samples from " + std::to_string(first) +
                                            " on are outside a view of " + std::to_string(self.size()));
  }
  Ids ids(static_cast<py::ssize_t>(count));
  const std::span<uint64_t> out = mutable_view(ids);
  const py::gil_scoped_release unlocked;
  self.fill(first, out);
  return ids;
}

Ids ranks(const Selection& self, const py::object& bounds) {
  const Words checked = to_words("bounds", bounds);
  Ids counts(checked.size());
  const std::span<uint64_t> out = mutable_view(counts);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bound = view(checked)[i];
    if (bound > self.universe()) {
      throw Error(ErrorKind::kOutOfRange, "bound " + std::to_string(static_cast<int64_t>(bound)) +
                                              " is outside a data set of " + std::to_string(self.universe()));
    }
    out[i] = self.rank(bound);
  }
  return counts;
}

// (form, arrays): what `restore` takes.
py::tuple parts(const Selection& self) {
  if (const auto* runs = std::get_if<Selection::Runs>(&self.form())) {
    std::vector<uint64_t> bounds;
    bounds.reserve(2 * runs->ends.size());
    uint64_t before = 0;
    for (size_t run = 0; run < runs->ends.size(); ++run) {
      bounds.push_back(runs->first_ids[run]);
      bounds.push_back(runs->first_ids[run] + (runs->ends[run] - before));
      before = runs->ends[run];
    }
    return py::make_tuple("runs", copy_words(bounds));
  }
  if (const auto* list = std::get_if<Selection::List>(&self.form()))
    return py::make_tuple("ids", copy_words(list->ids));
  const std::vector<uint64_t>& words = std::get<Selection::Bits>(self.form()).words;
  const auto used = static_cast<ptrdiff_t>((self.universe() + 63) / 64);
  return py::make_tuple("bits", copy_words({words.begin(), words.begin() + used}));
}

Selection restore(const std::string& form, const py::object& values, uint64_t universe) {
  const Words words = to_words("values", values);
  const std::span<const uint64_t> given = view(words);
  if (form == "ids") return Selection::of_ids(given, universe);
  if (form == "bits") return Selection::of_words({given.begin(), given.end()}, universe);
  if (form != "runs") invalid("form must be \"runs\", \"ids\" or \"bits\", got \"" + form + "\"");
  if (given.size() % 2 != 0) invalid("runs are pairs of bounds, got " + std::to_string(given.size()) + " numbers");
  std::vector<Selection::Run> runs;
  runs.reserve(given.size() / 2);
  for (size_t i = 0; i < given.size(); i += 2) runs.push_back({given[i], given[i + 1]});
  return Selection::of_runs(runs, universe);
}

void register_selections(py::module_& module) {
  py::class_<Selection, std::shared_ptr<Selection>>(module, "Selection")
      .def_static("restore", &restore, py::arg("form"), py::arg("values"), py::arg("universe"))
      .def_static(
          "split",
          [](uint64_t size, uint64_t key, const std::vector<uint64_t>& cuts) {
            if (size > order::Permutation::kMaxSize) invalid("size must be at most 2^62, got " + std::to_string(size));
            std::vector<Selection> result;
            {
              const py::gil_scoped_release unlocked;
              result = Selection::split(order::Permutation(size, key), cuts);
            }
            py::list list;
            for (Selection& part : result) list.append(py::cast(std::make_shared<Selection>(std::move(part))));
            return list;
          },
          py::arg("size"), py::arg("key"), py::arg("cuts"))
      .def_property_readonly("size", &Selection::size)
      .def_property_readonly("universe", &Selection::universe)
      .def_property_readonly("memory", &Selection::memory)
      .def("ids", &selected, py::arg("places"))
      .def("fill", &consecutive, py::arg("first"), py::arg("count"))
      .def("at",
           [](const Selection& self, uint64_t place) {
             if (place >= self.size()) {
               throw Error(ErrorKind::kOutOfRange, "there is no sample " + std::to_string(place) + ": the view has " +
                                                       std::to_string(self.size()));
             }
             uint64_t id = 0;
             self.fill(place, {&id, 1});
             return id;
           })
      .def("ranks", &ranks, py::arg("bounds"))
      .def("digest",
           [](const Selection& self) {
             Hash128 hash;
             {
               const py::gil_scoped_release unlocked;
               hash = self.digest();
             }
             return to_bytes(hash);
           })
      .def("compose", &Selection::compose, py::arg("inner"), py::call_guard<py::gil_scoped_release>())
      .def("clip", &Selection::clip, py::arg("begin"), py::arg("end"), py::call_guard<py::gil_scoped_release>())
      .def("parts", &parts);

  py::class_<SelectionBuilder>(module, "SelectionBuilder")
      .def(py::init<uint64_t>(), py::arg("universe"))
      .def(
          "add", [](SelectionBuilder& self, const py::object& ids) { self.add(view(to_words("ids", ids))); },
          py::arg("ids"))
      .def("finish", [](SelectionBuilder& self) { return std::make_shared<Selection>(std::move(self).finish()); });
}

// xxh3-64 of each piece of `data`: [bounds[i], bounds[i + 1]).
Words hash_each(const py::object& data, const py::object& bounds) {
  const BufferView buffer(data);
  const Words ends = to_words("bounds", bounds);
  const std::span<const uint64_t> cuts = view(ends);
  Words hashes(cuts.empty() ? 0 : static_cast<py::ssize_t>(cuts.size() - 1));
  uint64_t* out = hashes.mutable_data();
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i] > cuts[i + 1] || cuts[i + 1] > buffer.bytes().size()) {
      invalid("bounds must ascend within the " + std::to_string(buffer.bytes().size()) + " bytes");
    }
    out[i] = xxh3_64(buffer.bytes().subspan(cuts[i], cuts[i + 1] - cuts[i]));
  }
  return hashes;
}

// H(SPLIT; seed, word) of docs/order.md for each word.
Words split_words(uint64_t seed, const py::object& words) {
  const Words given = to_words("words", words);
  Words result(given.size());
  uint64_t* out = result.mutable_data();
  for (const uint64_t word : view(given)) *out++ = order::hash_words(order::Purpose::kSplit, {seed, word});
  return result;
}

}  // namespace

void register_selection(py::module_& module) {
  register_selections(module);
  module.def("xxh3_64_each", &hash_each, py::arg("data"), py::arg("bounds"));
  module.def("split_words", &split_words, py::arg("seed"), py::arg("words"));
}

}  // namespace fastshard::bindings
