// Engines by name, for the bindings.
#pragma once

#include <memory>
#include <string>

#include "io/read_engine.h"

namespace fastshard::bindings {

// "uring", "threads", or for tests "uring:registered" (from the first read on) and "scrambled:SEED". Throws
// Error(kInvalid) where the system does not allow it.
[[nodiscard]] std::unique_ptr<io::ReadEngine> make_engine(const std::string& name, uint32_t depth, uint32_t io_threads);

}  // namespace fastshard::bindings
