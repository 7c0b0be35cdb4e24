// A reader of FlatBuffers tables in which every step is bounds-checked: https://flatbuffers.dev/internals/.
// A table that passed the constructor may be asked for any field; absent fields give the default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace fastshard::ipc {

class FlatVector;

class FlatTable {
 public:
  // The root table of a buffer.
  [[nodiscard]] static FlatTable root(ByteSpan buffer);

  template <typename T>
  [[nodiscard]] T scalar(unsigned field, T fallback) const {
    const std::byte* at = field_at(field, sizeof(T));
    return at == nullptr ? fallback : load<T>(at);
  }
  [[nodiscard]] bool has(unsigned field) const { return slot(field) != 0; }
  [[nodiscard]] std::optional<FlatTable> table(unsigned field) const;
  [[nodiscard]] std::string_view string(unsigned field) const;  // empty where absent
  // A vector of elements of `element_size` bytes (4 for vectors of tables); empty where absent.
  [[nodiscard]] FlatVector vector(unsigned field, size_t element_size) const;

 private:
  friend class FlatVector;
  FlatTable(ByteSpan buffer, uint64_t position);

  [[nodiscard]] uint16_t slot(unsigned field) const;
  [[nodiscard]] const std::byte* field_at(unsigned field, size_t size) const;
  // Follows the unsigned offset stored at `position`.
  [[nodiscard]] static uint64_t follow(ByteSpan buffer, uint64_t position);

  ByteSpan buffer_;
  uint64_t position_ = 0;
  uint64_t vtable_ = 0;
  uint16_t vtable_size_ = 0;
  uint16_t table_size_ = 0;
};

class FlatVector {
 public:
  FlatVector() = default;
  [[nodiscard]] uint32_t size() const noexcept { return size_; }
  [[nodiscard]] const std::byte* element(uint32_t index) const;  // throws beyond the end
  [[nodiscard]] FlatTable table(uint32_t index) const;
  [[nodiscard]] ByteSpan bytes() const { return buffer_.subspan(first_, uint64_t{size_} * element_size_); }

 private:
  friend class FlatTable;
  FlatVector(ByteSpan buffer, uint64_t first, uint32_t size, size_t element_size)
      : buffer_(buffer), first_(first), size_(size), element_size_(element_size) {}

  ByteSpan buffer_;
  uint64_t first_ = 0;
  uint32_t size_ = 0;
  size_t element_size_ = 1;
};

}  // namespace fastshard::ipc
