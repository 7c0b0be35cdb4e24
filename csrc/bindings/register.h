// One register function per topic; module.cpp is the list of them.
#pragma once

#include <pybind11/pybind11.h>

namespace fastshard {
class Error;
}

namespace fastshard::bindings {

// Sets the Python exception for a native error.
void set_python_error(const Error& error);

void register_errors(pybind11::module_& module);
void register_ipc(pybind11::module_& module);
void register_io(pybind11::module_& module);
void register_order(pybind11::module_& module);
void register_selection(pybind11::module_& module);
void register_pipeline(pybind11::module_& module);
void register_stream(pybind11::module_& module);
void register_shared(pybind11::module_& module);

}  // namespace fastshard::bindings
