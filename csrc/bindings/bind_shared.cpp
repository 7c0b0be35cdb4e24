// Memory of batches between processes. Which tensors lie where is Python's business (fastshard/_handover.py).
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "base/error.h"
#include "bindings/register.h"
#include "pipeline/shared_batch.h"

namespace py = pybind11;

namespace fastshard::bindings {
namespace {

using io::ReceivedMemory;
using io::SharedTicket;
using pipeline::Buffer;
using pipeline::SharedBatch;
using pipeline::SharedPool;

uintptr_t address_of(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }

// [(address, bytes)]
py::list pieces(const SharedBatch& self) {
  py::list found;
  for (const std::span<std::byte> piece : self.pieces())
    found.append(py::make_tuple(address_of(piece.data()), piece.size()));
  return found;
}

// (piece, offset, uint8 array)
py::tuple lease(SharedBatch& self, size_t bytes) {
  auto held = std::make_unique<Buffer>(self.lease(bytes));
  const std::vector<std::span<std::byte>> all = self.pieces();
  size_t number = all.size() - 1;  // what is leased lies in the last piece
  const size_t offset = static_cast<size_t>(held->data() - all[number].data());
  auto* const data = reinterpret_cast<uint8_t*>(held->data());
  const py::capsule owner(held.release(), [](void* pointer) { delete static_cast<Buffer*>(pointer); });
  return py::make_tuple(number, offset, py::array_t<uint8_t>(static_cast<py::ssize_t>(bytes), data, owner));
}

// [(pid, fd, cookie, number, bytes)]; None where they were sent before.
py::object send(SharedBatch& self, const std::vector<uint32_t>& numbers) {
  const std::vector<SharedTicket> tickets = self.send(numbers);
  if (tickets.size() != numbers.size()) return py::none();
  py::list sent;
  for (const SharedTicket& ticket : tickets)
    sent.append(py::make_tuple(ticket.pid, ticket.fd, ticket.cookie, ticket.number, ticket.bytes));
  return sent;
}

std::unique_ptr<ReceivedMemory> receive(int64_t pid, int32_t fd, uint64_t cookie, uint64_t number, uint64_t bytes) {
  const py::gil_scoped_release release;
  return std::make_unique<ReceivedMemory>(SharedTicket{pid, fd, cookie, number, bytes});
}

}  // namespace

void register_shared(py::module_& module) {
  py::class_<SharedPool, std::shared_ptr<SharedPool>>(module, "SharedPool")
      .def(py::init(&SharedPool::make))
      .def("batch", &SharedPool::batch, py::arg("expected_bytes"))
      .def_property_readonly("fresh_pieces", &SharedPool::fresh_pieces);
  py::class_<SharedBatch, std::shared_ptr<SharedBatch>>(module, "SharedBatch")
      .def_property_readonly("pieces", &pieces)
      .def("lease", &lease, py::arg("bytes"))
      .def("send", &send, py::arg("numbers"));
  py::class_<ReceivedMemory>(module, "ReceivedMemory", py::buffer_protocol())
      .def(py::init(&receive), py::arg("pid"), py::arg("fd"), py::arg("cookie"), py::arg("number"), py::arg("bytes"))
      .def_buffer([](const ReceivedMemory& self) {
        const std::span<std::byte> bytes = self.bytes();
        return py::buffer_info(reinterpret_cast<uint8_t*>(bytes.data()), static_cast<py::ssize_t>(bytes.size()));
      });
}

}  // namespace fastshard::bindings
