// XXH3 with seed 0, as docs/format.md section 0 names them.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fastshard {

using Hash128 = std::array<std::byte, 16>;  // canonical (big-endian) byte order

inline uint64_t xxh3_64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

inline Hash128 canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical_form;
  XXH128_canonicalFromHash(&canonical_form, hash);
  Hash128 out;
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(canonical_form.digest[i]);
  return out;
}

inline Hash128 xxh3_128(std::span<const std::byte> bytes) {
  return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace fastshard
