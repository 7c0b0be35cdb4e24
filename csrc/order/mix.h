// Integer mixing and exact division of docs/order.md, section 2. Everything is constexpr and free of floating point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace fastshard::order {

inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

// What a key is for; the first word hashed, so that no two uses share a key.
enum class Purpose : uint64_t {
  kGlobal = 1,    // samples of a lane, kind `global`
  kDeal = 2,      // shards, dealt to lanes
  kUnits = 3,     // units of a lane, kind `block`
  kWindow = 4,    // samples of a window, kind `block`
  kSource = 5,    // the seed of one source of a mix
  kSplit = 6,     // splits of a view
  kWeighted = 7,  // reserved for weighted sampling
};

// SplitMix64's finalizer: a bijection of 64-bit words.
[[nodiscard]] constexpr uint64_t mix64(uint64_t word) noexcept {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

// A key from any number of words. Sums of words never meet: each is mixed before the next comes in.
[[nodiscard]] constexpr uint64_t hash_words(Purpose purpose, std::span<const uint64_t> words) noexcept {
  uint64_t state = mix64(static_cast<uint64_t>(purpose) * kGolden);
  for (const uint64_t word : words) state = mix64(mix64(state ^ word) + kGolden);
  return state;
}

[[nodiscard]] constexpr uint64_t hash_words(Purpose purpose, std::initializer_list<uint64_t> words) noexcept {
  return hash_words(purpose, std::span(words.begin(), words.size()));
}

// The i-th word of the stream that a key stands for.
[[nodiscard]] constexpr uint64_t stream_word(uint64_t key, uint64_t index) noexcept {
  return mix64(key + (index + 1) * kGolden);
}

// The upper half of the 128-bit product.
[[nodiscard]] constexpr uint64_t multiply_high(uint64_t a, uint64_t b) noexcept {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

// Exact division by a number that stays: one multiplication, one correction.
//
// With m = floor((2^64 - 1) / d), m >= 2^64 / d - 1, so x * m / 2^64 > x / d - 1 and the estimate floor(x * m / 2^64)
// is the quotient or one less, for every x below 2^64.
class Divider {
 public:
  struct Result {
    uint64_t quotient;
    uint64_t remainder;
  };

  constexpr explicit Divider(uint64_t divisor) noexcept : divisor_(divisor), reciprocal_(UINT64_MAX / divisor) {}

  [[nodiscard]] constexpr uint64_t divisor() const noexcept { return divisor_; }

  [[nodiscard]] constexpr Result operator()(uint64_t dividend) const noexcept {
    uint64_t quotient = multiply_high(dividend, reciprocal_);
    uint64_t remainder = dividend - quotient * divisor_;
    const bool one_less = remainder >= divisor_;
    quotient += one_less ? 1 : 0;
    remainder -= one_less ? divisor_ : 0;
    return {quotient, remainder};
  }

 private:
  uint64_t divisor_;
  uint64_t reciprocal_;
};

}  // namespace fastshard::order
