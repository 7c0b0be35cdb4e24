// The native reader: takes of many samples, and a callable for one.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/fault_guard.h"
#include "bindings/arrays.h"
#include "bindings/column_stats.h"
#include "bindings/forms.h"
#include "bindings/register.h"
#include "bindings/sampler.h"
#include "pipeline/shard_set.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using pipeline::ShardSet;
using pipeline::ShardSetOptions;

Hash128 parse_hash(const py::bytes& bytes) {
  const std::string_view text = bytes;
  Hash128 hash;
  if (text.size() != hash.size())
    throw Error(ErrorKind::kInvalid, "an xxh3-128 has 16 bytes, not " + std::to_string(text.size()));
  std::memcpy(hash.data(), text.data(), hash.size());
  return hash;
}

std::shared_ptr<ShardSet> open_shard_set(std::string root, std::string shard_table, std::string block_table,
                                         const py::bytes& shard_table_hash, int64_t block_table_bytes, int64_t rows,
                                         int64_t shards, const py::bytes& schema_ipc, const std::string& verify,
                                         size_t cache_bytes, size_t max_open) {
  ShardSetOptions options;
  options.root = std::move(root);
  options.shard_table = std::move(shard_table);
  options.block_table = std::move(block_table);
  options.shard_table_hash = parse_hash(shard_table_hash);
  options.block_table_bytes = block_table_bytes;
  options.rows = rows;
  options.shards = shards;
  const std::string_view schema = schema_ipc;
  const auto* const bytes = reinterpret_cast<const std::byte*>(schema.data());
  options.schema_message.assign(bytes, bytes + schema.size());
  options.verify = parse_verify(verify);
  options.cache_bytes = cache_bytes;
  options.max_open = std::max<size_t>(1, max_open);
  const py::gil_scoped_release release;
  return std::make_shared<ShardSet>(std::move(options));
}

py::dict describe(const ipc::Field& field) {
  py::list children;
  for (const ipc::Field& child : field.children) children.append(describe(child));
  py::dict dict;
  dict["name"] = field.name;
  dict["type"] = ipc::name_of(field.type);
  dict["text"] = field.type_name();
  dict["nullable"] = field.nullable;
  dict["unit"] = field.unit;
  dict["byte_width"] = field.byte_width;
  dict["list_size"] = field.list_size;
  dict["precision"] = field.precision;
  dict["scale"] = field.scale;
  dict["extension"] = field.extension_name;
  dict["extension_metadata"] = py::bytes(field.extension_metadata);
  dict["children"] = children;
  return dict;
}

py::str intern(const std::string& name) {
  PyObject* text = PyUnicode_FromStringAndSize(name.data(), static_cast<py::ssize_t>(name.size()));
  if (text == nullptr) throw py::error_already_set();
  PyUnicode_InternInPlace(&text);
  return py::reinterpret_steal<py::str>(text);
}

std::shared_ptr<Projection> make_projection(const ShardSet& set, const std::vector<uint32_t>& columns,
                                            const py::tuple& forms) {
  auto projection = std::make_shared<Projection>();
  if (forms.size() != columns.size()) throw Error(ErrorKind::kInvalid, "as many forms as columns are needed");
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] >= set.schema().fields.size())
      throw Error(ErrorKind::kInvalid, "there is no column " + std::to_string(columns[i]));
    const ipc::Field& field = set.schema().fields[columns[i]];
    projection->columns.push_back(columns[i]);
    projection->forms.push_back(parse_form(forms[i], field));
    projection->paddings.push_back(projection->forms.back().padding);
    projection->names.push_back(intern(field.name));
  }
  return projection;
}

py::list take(ShardSet& set, const py::array_t<int64_t, py::array::c_style>& ids, const Projection& projection) {
  if (ids.ndim() != 1) throw Error(ErrorKind::kInvalid, "ids have one dimension");
  const std::span<const int64_t> span(ids.data(), static_cast<size_t>(ids.size()));
  std::vector<pipeline::Column> columns;
  {
    const py::gil_scoped_release release;
    columns = set.take(span, projection.columns);
    pipeline::pad(columns, projection.paddings, span, set.table(), set.pool());
  }
  return whole_columns(set, projection, span, std::move(columns));
}

template <typename T, typename Get>
py::array_t<T> per_shard(const ShardSet& set, Get get) {
  std::vector<T> values(set.table().size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = get(set.table(), i);
  return to_array(values);
}

py::dict stats(ShardSet& set) {
  const pipeline::Stats stats = set.stats();
  py::dict dict;
  dict["shards_opened"] = stats.shards_opened;
  dict["shards_open"] = stats.shards_open;
  dict["blocks_parsed"] = stats.blocks_parsed;
  dict["columns_checked"] = stats.columns_checked;
  dict["bytes_checked"] = stats.bytes_checked;
  dict["columns_decompressed"] = stats.columns_decompressed;
  dict["cache_bytes"] = stats.cache_bytes;
  dict["fresh_buffers"] = stats.fresh_buffers;
  return dict;
}

}  // namespace

pipeline::Verify parse_verify(const std::string& name) {
  if (name == "never") return pipeline::Verify::kNever;
  if (name == "once") return pipeline::Verify::kOnce;
  if (name == "always") return pipeline::Verify::kAlways;
  throw Error(ErrorKind::kInvalid, "verify is 'never', 'once' or 'always' here, not '" + name + "'");
}

void register_pipeline(py::module_& module) {
  using pipeline::ShardTable;
  py::class_<Projection, std::shared_ptr<Projection>>(module, "Projection");
  py::class_<ShardSet, std::shared_ptr<ShardSet>>(module, "ShardSet")
      .def(py::init(&open_shard_set), py::kw_only(), py::arg("root"), py::arg("shard_table"), py::arg("block_table"),
           py::arg("shard_table_hash"), py::arg("block_table_bytes"), py::arg("rows"), py::arg("shards"),
           py::arg("schema_ipc"), py::arg("verify"), py::arg("cache_bytes"), py::arg("max_open"))
      .def_property_readonly("rows", &ShardSet::rows)
      .def_property_readonly("shards", [](const ShardSet& self) { return self.table().size(); })
      .def_property_readonly("fields",
                             [](const ShardSet& self) {
                               py::list fields;
                               for (const ipc::Field& field : self.schema().fields) fields.append(describe(field));
                               return fields;
                             })
      .def("projection", &make_projection, py::arg("columns"), py::arg("forms"))
      .def("take", &take, py::arg("ids").noconvert(), py::arg("projection"))
      .def(
          "sampler",
          [](const std::shared_ptr<ShardSet>& self, const std::shared_ptr<Projection>& projection) {
            return make_sampler(self, projection);
          },
          py::arg("projection"))
      .def("shard_rows",
           [](const ShardSet& self) {
             return per_shard<int64_t>(self, [](const ShardTable& t, size_t i) { return t.rows(i); });
           })
      .def("shard_blocks",
           [](const ShardSet& self) {
             return per_shard<int64_t>(self, [](const ShardTable& t, size_t i) { return t.blocks(i); });
           })
      .def("shard_block_rows",
           [](const ShardSet& self) {
             return per_shard<int64_t>(self, [](const ShardTable& t, size_t i) { return t.block_rows(i); });
           })
      .def("shard_bytes",
           [](const ShardSet& self) {
             return per_shard<int64_t>(self, [](const ShardTable& t, size_t i) { return t.bytes(i); });
           })
      .def(
          "shard_path",
          [](const ShardSet& self, size_t shard) {
            if (shard >= self.table().size())
              throw Error(ErrorKind::kOutOfRange, "there is no shard " + std::to_string(shard));
            return std::string(self.table().path(shard));
          },
          py::arg("shard"))
      .def(
          "locate",
          [](const ShardSet& self, int64_t id) {
            if (id < 0 || id >= self.rows())
              throw Error(ErrorKind::kOutOfRange, "there is no sample " + std::to_string(id));
            const pipeline::ShardPlace place = self.table().locate(id);
            return py::make_tuple(place.shard, place.row);
          },
          py::arg("id"), "(shard, row in the shard) of a sample.")
      .def(
          "fingerprint",
          [](const ShardSet& self, std::optional<size_t> shards) {
            const size_t count = shards.value_or(self.table().size());
            if (count > self.table().size())
              throw Error(ErrorKind::kOutOfRange, "there are no " + std::to_string(count) + " shards");
            return to_bytes(self.table().fingerprint(count));
          },
          py::arg("shards") = py::none(), "Of the first shards, all by default.")
      .def(
          "verify",
          [](ShardSet& self, size_t shard) {
            if (shard >= self.table().size())
              throw Error(ErrorKind::kOutOfRange, "there is no shard " + std::to_string(shard));
            pipeline::ShardReport report;
            {
              const py::gil_scoped_release release;
              report = self.verify(shard);
            }
            py::list faults;
            for (const pipeline::ShardFault& fault : report.faults)
              faults.append(py::make_tuple(fault.code, fault.message));
            return py::make_tuple(std::move(faults), column_stats(report.columns));
          },
          py::arg("shard"),
          "Every fault of a shard as (code, one line of text), and what it adds to the statistics of each column.")
      .def(
          "check",
          [](ShardSet& self, size_t shard, const std::vector<uint32_t>& columns) {
            if (shard >= self.table().size())
              throw Error(ErrorKind::kOutOfRange, "there is no shard " + std::to_string(shard));
            for (const uint32_t column : columns) {
              if (column >= self.schema().fields.size())
                throw Error(ErrorKind::kInvalid, "there is no column " + std::to_string(column));
            }
            const py::gil_scoped_release release;
            self.check(shard, columns);
          },
          py::arg("shard"), py::arg("columns"),
          "Compares the hashes of a shard's columns; raises at the first that differs.")
      .def("stats", &stats)
      .def("close", &ShardSet::close, py::call_guard<py::gil_scoped_release>());
}

}  // namespace fastshard::bindings
