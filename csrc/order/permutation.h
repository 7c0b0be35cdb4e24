// A keyed permutation of [0, size), evaluated at any position in constant time and memory: docs/order.md, section 3.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "order/mix.h"

namespace fastshard::order {

// The smallest integer whose square is at least `value`; `value` from 1 to 2^62.
[[nodiscard]] constexpr uint64_t ceil_sqrt(uint64_t value) noexcept {
  uint64_t low = 1;
  uint64_t high = uint64_t{1} << 31;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (middle * middle >= value) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

class Permutation {
 public:
  static constexpr uint64_t kMaxSize = uint64_t{1} << 62;
  static constexpr uint64_t kTableBelow = 1024;  // a Feistel network is not uniform on fewer
  static constexpr int kRounds = 8;

  struct RoundKey {
    uint32_t before;   // xor-ed in before the first multiplication
    uint32_t between;  // and before the second
  };

  // The position as digits (left, right) of the mixed radix (left_size, right_size).
  struct Digits {
    uint32_t left;
    uint32_t right;
  };

  // `size` at most kMaxSize; the caller checks it.
  constexpr Permutation(uint64_t size, uint64_t key) noexcept
      : size_(size),
        left_size_(is_table(size) ? 1 : static_cast<uint32_t>(ceil_sqrt(size))),
        right_(is_table(size) ? 1 : (size + left_size_ - 1) / left_size_) {
    if (is_table(size)) {
      shuffle_table(key);
    } else {
      for (size_t round = 0; round < kRounds; ++round) {
        const uint64_t word = stream_word(key, round);
        round_keys_[round] = {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
      }
    }
  }

  [[nodiscard]] constexpr uint64_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool has_table() const noexcept { return is_table(size_); }
  [[nodiscard]] constexpr const std::array<uint16_t, kTableBelow>& table() const noexcept { return table_; }
  [[nodiscard]] constexpr uint32_t left_size() const noexcept { return left_size_; }
  [[nodiscard]] constexpr uint32_t right_size() const noexcept { return static_cast<uint32_t>(right_.divisor()); }
  [[nodiscard]] constexpr const std::array<RoundKey, kRounds>& round_keys() const noexcept { return round_keys_; }

  // The value at `position` < size(). Many at once: order/permutation_batch.h.
  [[nodiscard]] constexpr uint64_t operator()(uint64_t position) const noexcept {
    if (has_table()) return table_[position];
    uint64_t value = position;
    do {
      value = compose(network(split(value)));
    } while (value >= size_);
    return value;
  }

  [[nodiscard]] constexpr Digits split(uint64_t value) const noexcept {
    const Divider::Result result = right_(value);
    return {static_cast<uint32_t>(result.quotient), static_cast<uint32_t>(result.remainder)};
  }

  [[nodiscard]] constexpr uint64_t compose(Digits digits) const noexcept {
    return uint64_t{digits.left} * right_.divisor() + digits.right;
  }

  // One pass of the Feistel network: a bijection of [0, left_size) x [0, right_size).
  [[nodiscard]] constexpr Digits network(Digits digits) const noexcept {
    for (size_t round = 0; round < kRounds; round += 2) {
      digits.left = shift(digits.left, digits.right, round_keys_[round], left_size());
      digits.right = shift(digits.right, digits.left, round_keys_[round + 1], right_size());
    }
    return digits;
  }

  // (digit + f(other)) mod modulus, f below the modulus.
  [[nodiscard]] static constexpr uint32_t shift(uint32_t digit, uint32_t other, RoundKey key,
                                                uint32_t modulus) noexcept {
    uint32_t hash = (other ^ key.before) * kFirstMultiplier;
    hash ^= hash >> 15;
    hash = (hash ^ key.between) * kSecondMultiplier;
    hash ^= hash >> 16;
    const uint32_t sum = digit + static_cast<uint32_t>((uint64_t{hash} * modulus) >> 32);
    return sum >= modulus ? sum - modulus : sum;
  }

  static constexpr uint32_t kFirstMultiplier = 0x21f0aaad;
  static constexpr uint32_t kSecondMultiplier = 0xd35a2d97;

 private:
  [[nodiscard]] static constexpr bool is_table(uint64_t size) noexcept { return size < kTableBelow; }

  // Fisher-Yates. The bias of multiply_high is below 2^-54.
  constexpr void shuffle_table(uint64_t key) noexcept {
    for (size_t i = 0; i < size_; ++i) table_[i] = static_cast<uint16_t>(i);
    for (size_t i = size_; i-- > 1;) std::swap(table_[i], table_[multiply_high(stream_word(key, i), i + 1)]);
  }

  uint64_t size_;
  uint32_t left_size_;
  Divider right_;
  std::array<RoundKey, kRounds> round_keys_{};
  std::array<uint16_t, kTableBelow> table_{};
};

}  // namespace fastshard::order
