// The Feistel network of Permutation on eight digit pairs a vector. Compiled for any x86-64; run only where has_avx2().
#include "order/permutation_batch.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>

#define FASTSHARD_AVX2 __attribute__((target("avx2")))

namespace fastshard::order::detail {
namespace {

constexpr size_t kLanes = 8;
constexpr size_t kVectors = kStride / kLanes;  // independent chains, to hide the latency of the multiplications

struct Round {
  __m256i before;
  __m256i between;
  __m256i modulus;
};

// Permutation::shift, eight at a time.
FASTSHARD_AVX2 inline __m256i shift(__m256i digit, __m256i other, const Round& round, __m256i first, __m256i second) {
  __m256i hash = _mm256_mullo_epi32(_mm256_xor_si256(other, round.before), first);
  hash = _mm256_xor_si256(hash, _mm256_srli_epi32(hash, 15));
  hash = _mm256_mullo_epi32(_mm256_xor_si256(hash, round.between), second);
  hash = _mm256_xor_si256(hash, _mm256_srli_epi32(hash, 16));
  const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(hash, round.modulus), 32);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(hash, 32), round.modulus);
  const __m256i sum = _mm256_add_epi32(digit, _mm256_blend_epi32(even, odd, 0b10101010));
  return _mm256_min_epu32(sum,
                          _mm256_sub_epi32(sum, round.modulus));  // the difference wraps when it is not the remainder
}

}  // namespace

FASTSHARD_AVX2 void network_avx2(const Permutation& permutation, uint32_t* left, uint32_t* right, uint64_t* values,
                                 size_t count) {
  const __m256i first = _mm256_set1_epi32(static_cast<int>(Permutation::kFirstMultiplier));
  const __m256i second = _mm256_set1_epi32(static_cast<int>(Permutation::kSecondMultiplier));
  const __m256i left_size = _mm256_set1_epi32(static_cast<int>(permutation.left_size()));
  const __m256i right_size = _mm256_set1_epi32(static_cast<int>(permutation.right_size()));
  std::array<Round, Permutation::kRounds> rounds;
  for (size_t i = 0; i < rounds.size(); ++i) {
    const Permutation::RoundKey key = permutation.round_keys()[i];
    rounds[i] = {_mm256_set1_epi32(static_cast<int>(key.before)), _mm256_set1_epi32(static_cast<int>(key.between)),
                 i % 2 == 0 ? left_size : right_size};
  }
  for (size_t start = 0; start < count; start += kStride) {
    __m256i l[kVectors];
    __m256i r[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      l[v] = _mm256_load_si256(reinterpret_cast<const __m256i*>(left + start + v * kLanes));
      r[v] = _mm256_load_si256(reinterpret_cast<const __m256i*>(right + start + v * kLanes));
    }
    for (size_t i = 0; i < rounds.size(); i += 2) {
      for (size_t v = 0; v < kVectors; ++v) l[v] = shift(l[v], r[v], rounds[i], first, second);
      for (size_t v = 0; v < kVectors; ++v) r[v] = shift(r[v], l[v], rounds[i + 1], first, second);
    }
    for (size_t v = 0; v < kVectors; ++v) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(left + start + v * kLanes), l[v]);
      _mm256_store_si256(reinterpret_cast<__m256i*>(right + start + v * kLanes), r[v]);
      const __m256i even = _mm256_add_epi64(_mm256_mul_epu32(l[v], right_size),
                                            _mm256_blend_epi32(r[v], _mm256_setzero_si256(), 0b10101010));
      const __m256i odd =
          _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(l[v], 32), right_size), _mm256_srli_epi64(r[v], 32));
      const __m256i low = _mm256_unpacklo_epi64(even, odd);   // values 0, 1, 4, 5
      const __m256i high = _mm256_unpackhi_epi64(even, odd);  // values 2, 3, 6, 7
      uint64_t* out = values + start + v * kLanes;
      _mm256_store_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(low, high, 0x20));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + 4), _mm256_permute2x128_si256(low, high, 0x31));
    }
  }
}

bool has_avx2() noexcept { return __builtin_cpu_supports("avx2") != 0; }

}  // namespace fastshard::order::detail

#else

namespace fastshard::order::detail {

void network_avx2(const Permutation& permutation, uint32_t* left, uint32_t* right, uint64_t* values, size_t count) {
  network_portable(permutation, left, right, values, count);
}

bool has_avx2() noexcept { return false; }

}  // namespace fastshard::order::detail

#endif
