// NumPy's C API, imported once (module.cpp defines FASTSHARD_IMPORTS_NUMPY).
#pragma once

#include <pybind11/pybind11.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL fastshard_numpy_api
#ifndef FASTSHARD_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
