// Hashes, fault codes and the index of one file.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/fault_guard.h"
#include "base/hash.h"
#include "bindings/arrays.h"
#include "bindings/column_stats.h"
#include "bindings/register.h"
#include "ipc/fault.h"
#include "pipeline/file_index.h"
#include "pipeline/guarded_file.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using pipeline::FileIndex;
using pipeline::IndexedBlock;

std::string file_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

ipc::FileKind parse_kind(const std::string& kind) {
  if (kind == "auto") return ipc::FileKind::kAuto;
  if (kind == "file") return ipc::FileKind::kFile;
  if (kind == "stream") return ipc::FileKind::kStream;
  throw Error(ErrorKind::kInvalid, "kind is 'auto', 'file' or 'stream', not '" + kind + "'");
}

template <typename T, typename Get>
py::array_t<T> per_block(const FileIndex& index, Get get) {
  std::vector<T> values;
  values.reserve(index.blocks.size());
  for (const IndexedBlock& block : index.blocks) values.push_back(get(block));
  return to_array(values);
}

py::array_t<uint64_t> column_hashes(const FileIndex& index) {
  const auto columns = static_cast<py::ssize_t>(index.schema.fields.size());
  py::array_t<uint64_t> array({static_cast<py::ssize_t>(index.blocks.size()), columns});
  uint64_t* out = array.mutable_data();
  for (const IndexedBlock& block : index.blocks)
    out = std::copy(block.column_hashes.begin(), block.column_hashes.end(), out);
  return array;
}

}  // namespace

void register_ipc(py::module_& module) {
  module.def("fault_codes", &ipc::fault_codes, "The codes of all ways in which bytes can break the format.");
  module.def(
      "xxh3_64", [](const py::object& buffer) { return xxh3_64(BufferView(buffer).bytes()); }, py::arg("buffer"));
  module.def(
      "xxh3_128",
      [](const py::object& buffer) {
        const BufferView view(buffer);
        return to_bytes(xxh3_128(view.bytes()));
      },
      py::arg("buffer"), "xxh3-128 in canonical (big-endian) byte order.");
  module.def(
      "xxh3_128_file",
      [](const std::string& path) {
        Hash128 hash;
        {
          const py::gil_scoped_release release;
          install_fault_handler();
          hash = pipeline::GuardedFile(path, file_name(path), io::Access::kSequential).hash_all();
        }
        return to_bytes(hash);
      },
      py::arg("path"));

  py::class_<FileIndex>(module, "IndexedFile")
      .def_property_readonly("schema_ipc", [](const FileIndex& self) { return to_bytes(self.schema_message); })
      .def_readonly("rows", &FileIndex::rows)
      .def_readonly("bytes", &FileIndex::bytes)
      .def_readonly("raw_bytes", &FileIndex::raw_bytes)
      .def_readonly("block_rows", &FileIndex::block_rows)
      .def_property_readonly("blocks", [](const FileIndex& self) { return self.blocks.size(); })
      .def_property_readonly("hash", [](const FileIndex& self) { return to_bytes(self.hash); })
      .def_property_readonly("offset",
                             [](const FileIndex& self) {
                               return per_block<int64_t>(self, [](const IndexedBlock& b) { return b.extent.offset; });
                             })
      .def_property_readonly("metadata_bytes",
                             [](const FileIndex& self) {
                               return per_block<int64_t>(self,
                                                         [](const IndexedBlock& b) { return b.extent.metadata_bytes; });
                             })
      .def_property_readonly("body_bytes",
                             [](const FileIndex& self) {
                               return per_block<int64_t>(self,
                                                         [](const IndexedBlock& b) { return b.extent.body_bytes; });
                             })
      .def_property_readonly(
          "rows_of_block",
          [](const FileIndex& self) { return per_block<int64_t>(self, [](const IndexedBlock& b) { return b.rows; }); })
      .def_property_readonly("metadata_hash",
                             [](const FileIndex& self) {
                               return per_block<uint64_t>(self, [](const IndexedBlock& b) { return b.metadata_hash; });
                             })
      .def_property_readonly("column_hashes", &column_hashes)
      .def_property_readonly("columns", [](const FileIndex& self) { return column_stats(self.columns); });

  module.def(
      "index_file",
      [](const std::string& path, const std::string& kind) {
        const ipc::FileKind parsed = parse_kind(kind);
        const py::gil_scoped_release release;
        return pipeline::index_file(path, file_name(path), parsed);
      },
      py::arg("path"), py::kw_only(), py::arg("kind") = "auto",
      "Reads an Arrow IPC file or stream whole, checks its structure, and returns what an index holds about it.");
}

}  // namespace fastshard::bindings
