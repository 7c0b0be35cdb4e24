// Errors of the native core. Thrown on cold paths (open, parse, plan); bindings/errors translates each kind to one
// Python class.
#pragma once

#include <stdexcept>
#include <string>

namespace fastshard {

enum class ErrorKind {
  kCorrupt,      // bytes contradict the format, the index or their checksum
  kUnsupported,  // valid, but nothing that this reader reads
  kIo,           // the operating system refused or failed
  kNotFound,     // a file that the index names is not there
  kTimeout,      // storage did not answer in time
  kInvalid,      // an argument of the caller
  kOutOfRange,   // an id or a position outside the data set
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  // `code` names the violation of the format (see ipc/fault.h), or is empty.
  Error(ErrorKind kind, std::string code, const std::string& message)
      : std::runtime_error(message), kind_(kind), code_(std::move(code)) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& code() const noexcept { return code_; }

 private:
  ErrorKind kind_;
  std::string code_;
};

}  // namespace fastshard
