// Loads and sums of numbers that come from a file. Nothing here assumes alignment; every check throws or tells.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace fastshard {

static_assert(std::endian::native == std::endian::little, "fastshard reads little-endian data in place");

using ByteSpan = std::span<const std::byte>;

// Unaligned load; the caller has checked the bounds.
template <typename T>
[[nodiscard]] inline T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// True where [offset, offset + length) lies inside `size` bytes; none of the sums can wrap.
[[nodiscard]] constexpr bool range_fits(uint64_t offset, uint64_t length, uint64_t size) noexcept {
  return offset <= size && length <= size - offset;
}

// a * b and a + b for counts from a file; false where the result would pass 2^63 - 1.
[[nodiscard]] inline bool checked_multiply(int64_t a, int64_t b, int64_t& result) noexcept {
  return !__builtin_mul_overflow(a, b, &result);
}
[[nodiscard]] inline bool checked_add(int64_t a, int64_t b, int64_t& result) noexcept {
  return !__builtin_add_overflow(a, b, &result);
}

[[nodiscard]] constexpr int64_t bytes_for_bits(int64_t bits) noexcept { return bits / 8 + (bits % 8 != 0 ? 1 : 0); }

[[nodiscard]] inline bool bit_at(const std::byte* bits, int64_t index) noexcept {
  return ((static_cast<unsigned>(bits[index >> 3]) >> (index & 7)) & 1U) != 0;
}

}  // namespace fastshard
