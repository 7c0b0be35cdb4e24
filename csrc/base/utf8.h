// UTF-8 validation after Unicode 15, table 3-7 (well-formed byte sequences).
#pragma once

#include "base/bytes.h"

namespace fastshard {

[[nodiscard]] inline bool is_utf8(ByteSpan text) noexcept {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* const end = at + text.size();
  while (at < end) {
    while (end - at >= 8 && (load<uint64_t>(reinterpret_cast<const std::byte*>(at)) & 0x8080808080808080ULL) == 0)
      at += 8;
    if (at == end) break;
    const unsigned char lead = *at++;
    if (lead < 0x80) continue;
    int more = 0;
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      more = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      more = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return false;
    }
    if (end - at < more) return false;
    if (*at < low || *at > high) return false;
    for (int i = 1; i < more; ++i) {
      if (at[i] < 0x80 || at[i] > 0xBF) return false;
    }
    at += more;
  }
  return true;
}

}  // namespace fastshard
