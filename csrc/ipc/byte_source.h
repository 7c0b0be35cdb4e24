// Where the bytes of a file come from. Parsing works on copies that `read` made, so that they cannot change between
// check and use.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace fastshard::ipc {

class ByteSource {
 public:
  [[nodiscard]] virtual uint64_t size() const noexcept = 0;
  // The range lies inside [0, size()). Throws Error where the bytes cannot be had.
  [[nodiscard]] virtual std::vector<std::byte> read(uint64_t offset, uint64_t length) const = 0;

 protected:
  ByteSource() = default;
  ~ByteSource() = default;
  ByteSource(const ByteSource&) = default;
  ByteSource& operator=(const ByteSource&) = default;
  ByteSource(ByteSource&&) = default;
  ByteSource& operator=(ByteSource&&) = default;
};

// Bytes that are in memory already.
class SpanSource final : public ByteSource {
 public:
  explicit SpanSource(ByteSpan bytes) : bytes_(bytes) {}
  [[nodiscard]] uint64_t size() const noexcept override { return bytes_.size(); }
  [[nodiscard]] std::vector<std::byte> read(uint64_t offset, uint64_t length) const override {
    const ByteSpan part = bytes_.subspan(offset, length);
    return {part.begin(), part.end()};
  }

 private:
  ByteSpan bytes_;
};

}  // namespace fastshard::ipc
