// Engines by themselves: which can be had, and a handle on one for the suite that holds them to their contract.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "bindings/engines.h"
#include "bindings/register.h"
#include "io/direct_file.h"
#include "ipc/codec.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

// Owns the memory of its reads.
class EngineHandle {
 public:
  EngineHandle(const std::string& name, uint32_t depth, uint32_t io_threads)
      : engine_(make_engine(name, depth, io_threads)) {}

  // Requests are (tag, fd, offset, length); returns how many were taken.
  size_t submit(const std::vector<std::tuple<uint64_t, int, uint64_t, size_t>>& requests) {
    std::vector<io::ReadRequest> reads;
    for (const auto& [tag, fd, offset, length] : requests) {
      ipc::Storage& storage = memory_[tag] = ipc::Storage(length, static_cast<size_t>(io::kDirectAlignment));
      reads.push_back({tag, fd, offset, {storage.data(), storage.size()}});
    }
    const py::gil_scoped_release release;
    return engine_->submit(reads);
  }

  // [(tag, result, bytes)]
  py::list wait(size_t most, size_t at_least, double seconds) {
    std::vector<io::ReadCompletion> completions(most);
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
    size_t count = 0;
    {
      const py::gil_scoped_release release;
      count = engine_->wait(completions, at_least, deadline);
    }
    py::list done;
    for (size_t i = 0; i < count; ++i) {
      const io::ReadCompletion& completion = completions[i];
      const ipc::Storage storage = std::move(memory_[completion.tag]);
      const auto length = static_cast<size_t>(std::max(0, completion.result));
      done.append(py::make_tuple(completion.tag, completion.result,
                                 py::bytes(reinterpret_cast<const char*>(storage.span().data()), length)));
      memory_.erase(completion.tag);
    }
    return done;
  }

  void wake() { engine_->wake(); }
  std::string name() const { return std::string(engine_->name()); }
  int64_t registered_reads() const { return engine_->registered_reads(); }

 private:
  std::map<uint64_t, ipc::Storage> memory_;  // outlives the engine, which waits for its reads
  std::unique_ptr<io::ReadEngine> engine_;
};

// A piece of memory as blocks and batches have it.
class Memory {
 public:
  explicit Memory(size_t bytes) : storage_(bytes) {}
  py::buffer_info buffer() { return {storage_.data(), 1, "B", static_cast<py::ssize_t>(storage_.size())}; }

 private:
  ipc::Storage storage_;
};

}  // namespace

std::unique_ptr<io::ReadEngine> make_engine(const std::string& name, uint32_t depth, uint32_t io_threads) {
  if (name == "threads") return io::make_thread_engine(io_threads, depth);
  if (name == "uring" || name == "uring:registered") {
    std::string reason;
    std::unique_ptr<io::ReadEngine> engine =
        io::make_uring_engine(depth, reason, name == "uring" ? io::kRegisterAfter : 0);
    if (!engine) {
      throw Error(ErrorKind::kInvalid, "engine=\"uring\": " + reason + "; use engine=\"threads\" or \"auto\"");
    }
    return engine;
  }
  constexpr std::string_view kScrambled = "scrambled:";
  if (name.starts_with(kScrambled))
    return io::make_scrambled_engine(depth, std::stoull(name.substr(kScrambled.size())));
  throw Error(ErrorKind::kInvalid, "there is no engine '" + name + "'");
}

void register_io(py::module_& module) {
  module.def(
      "uring_refusal",
      [] {
        std::string reason;
        return io::make_uring_engine(1, reason) ? py::object(py::none()) : py::object(py::str(reason));
      },
      "None where io_uring can be used, else why not.");
  module.def("file_system", &io::file_system_of, py::arg("path"),
             "Kind of file system: tmpfs, nfs, fuse, ...; other for local disks.");
  module.def("memory_taken", &memory_taken, "Bytes of blocks and batches that are not freed yet; for tests.");
  module.def("memory_mapped", &memory_mapped, "Bytes of address space that large pieces lie in; for tests.");
  py::class_<Memory>(module, "Memory", py::buffer_protocol())
      .def(py::init<size_t>(), py::arg("bytes"))
      .def_buffer([](Memory& self) { return self.buffer(); });
  py::class_<EngineHandle>(module, "ReadEngine")
      .def(py::init<const std::string&, uint32_t, uint32_t>(), py::arg("name"), py::kw_only(), py::arg("depth") = 8,
           py::arg("io_threads") = 2)
      .def("submit", &EngineHandle::submit, py::arg("requests"))
      .def("wait", &EngineHandle::wait, py::kw_only(), py::arg("most"), py::arg("at_least"), py::arg("seconds"))
      .def("wake", &EngineHandle::wake)
      .def_property_readonly("name", &EngineHandle::name)
      .def_property_readonly("registered_reads", &EngineHandle::registered_reads);
}

}  // namespace fastshard::bindings
