// Many positions of a Permutation at once: SIMD where the machine has it, chosen at run time, and the same values
// without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "order/permutation.h"

namespace fastshard::order {

enum class Kernel { kPortable, kAvx2 };

[[nodiscard]] std::string_view kernel_name(Kernel kernel) noexcept;
// What this machine can run, the fastest last.
[[nodiscard]] std::span<const Kernel> available_kernels() noexcept;
[[nodiscard]] Kernel best_kernel() noexcept;

// ids[i] = permutation(first + i). `first` + ids.size() <= size(); the caller checks it.
void fill(const Permutation& permutation, uint64_t first, std::span<uint64_t> ids, Kernel kernel = best_kernel());

// ids[i] = permutation(positions[i]). Each position below size(), and ids.size() == positions.size(); the caller checks
// it. `ids` may be `positions`.
void evaluate(const Permutation& permutation, std::span<const uint64_t> positions, std::span<uint64_t> ids,
              Kernel kernel = best_kernel());

namespace detail {

// Both run the network over `count` digit pairs in place and write the composed values; `count` a multiple of kStride.
inline constexpr size_t kStride = 32;
void network_portable(const Permutation& permutation, uint32_t* left, uint32_t* right, uint64_t* values, size_t count);
void network_avx2(const Permutation& permutation, uint32_t* left, uint32_t* right, uint64_t* values, size_t count);
[[nodiscard]] bool has_avx2() noexcept;

}  // namespace detail
}  // namespace fastshard::order
