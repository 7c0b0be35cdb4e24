#include "ipc/flatbuffer.h"

#include "ipc/fault.h"

namespace fastshard::ipc {
namespace {

void require(ByteSpan buffer, uint64_t offset, uint64_t length, const char* what) {
  if (!range_fits(offset, length, buffer.size())) {
    fail(Fault::kFlatbuffer, "metadata: " + std::string(what) + " at " + std::to_string(offset) + " lies outside its " +
                                 std::to_string(buffer.size()) + " bytes");
  }
}

}  // namespace

uint64_t FlatTable::follow(ByteSpan buffer, uint64_t position) {
  require(buffer, position, 4, "an offset");
  return position + load<uint32_t>(buffer.data() + position);  // both far below 2^63: cannot wrap
}

FlatTable FlatTable::root(ByteSpan buffer) { return FlatTable(buffer, follow(buffer, 0)); }

FlatTable::FlatTable(ByteSpan buffer, uint64_t position) : buffer_(buffer), position_(position) {
  require(buffer, position, 4, "a table");
  const int64_t vtable = static_cast<int64_t>(position) - load<int32_t>(buffer.data() + position);
  if (vtable < 0) fail(Fault::kFlatbuffer, "metadata: a table's vtable lies before the buffer");
  vtable_ = static_cast<uint64_t>(vtable);
  require(buffer, vtable_, 4, "a vtable");
  vtable_size_ = load<uint16_t>(buffer.data() + vtable_);
  table_size_ = load<uint16_t>(buffer.data() + vtable_ + 2);
  if (vtable_size_ < 4 || vtable_size_ % 2 != 0) fail(Fault::kFlatbuffer, "metadata: a vtable has an impossible size");
  require(buffer, vtable_, vtable_size_, "a vtable");
  require(buffer, position_, table_size_, "a table");
}

uint16_t FlatTable::slot(unsigned field) const {
  const uint64_t at = 4 + 2 * uint64_t{field};
  if (at + 2 > vtable_size_) return 0;
  return load<uint16_t>(buffer_.data() + vtable_ + at);
}

const std::byte* FlatTable::field_at(unsigned field, size_t size) const {
  const uint16_t offset = slot(field);
  if (offset == 0) return nullptr;
  if (offset < 4 || !range_fits(offset, size, table_size_)) {
    fail(Fault::kFlatbuffer, "metadata: a field lies outside its table");
  }
  return buffer_.data() + position_ + offset;
}

std::optional<FlatTable> FlatTable::table(unsigned field) const {
  const std::byte* at = field_at(field, 4);
  if (at == nullptr) return std::nullopt;
  return FlatTable(buffer_, follow(buffer_, static_cast<uint64_t>(at - buffer_.data())));
}

std::string_view FlatTable::string(unsigned field) const {
  const FlatVector characters = vector(field, 1);
  if (characters.size() == 0) return {};
  return {reinterpret_cast<const char*>(characters.bytes().data()), characters.size()};
}

FlatVector FlatTable::vector(unsigned field, size_t element_size) const {
  const std::byte* at = field_at(field, 4);
  if (at == nullptr) return {};
  const uint64_t position = follow(buffer_, static_cast<uint64_t>(at - buffer_.data()));
  require(buffer_, position, 4, "a vector");
  const uint32_t size = load<uint32_t>(buffer_.data() + position);
  require(buffer_, position + 4, uint64_t{size} * element_size, "a vector");
  return {buffer_, position + 4, size, element_size};
}

const std::byte* FlatVector::element(uint32_t index) const {
  if (index >= size_) fail(Fault::kFlatbuffer, "metadata: a vector has fewer elements than expected");
  return buffer_.data() + first_ + uint64_t{index} * element_size_;
}

FlatTable FlatVector::table(uint32_t index) const {
  const std::byte* at = element(index);
  return FlatTable(buffer_, FlatTable::follow(buffer_, static_cast<uint64_t>(at - buffer_.data())));
}

}  // namespace fastshard::ipc
