// Decompression of one IPC buffer: an int64 with the uncompressed length (-1: stored raw), then an LZ4 or ZSTD frame.
#pragma once

#include <memory>

#include "base/bytes.h"
#include "ipc/message.h"

namespace fastshard::ipc {

// Owned bytes, aligned to 64 bytes or as said (a power of two). Contents are uninitialised until written.
class Storage {
 public:
  Storage() = default;
  explicit Storage(size_t size, size_t alignment = 64);
  [[nodiscard]] std::byte* data() noexcept { return bytes_.get(); }
  [[nodiscard]] ByteSpan span() const noexcept { return {bytes_.get(), size()}; }
  [[nodiscard]] size_t size() const noexcept { return bytes_ ? size_ : 0; }  // 0 when it was moved away

 private:
  struct GiveBack {
    size_t size;
    void operator()(std::byte* bytes) const noexcept;
  };
  std::unique_ptr<std::byte, GiveBack> bytes_;
  size_t size_ = 0;
};

// The uncompressed length of a compressed buffer, from its prefix and frame header. Throws kCompressedLength where the
// prefix is impossible or disagrees with the frame, before any memory is taken for it.
[[nodiscard]] int64_t uncompressed_length(ByteSpan compressed, Compression compression);

[[nodiscard]] Storage decompress(ByteSpan compressed, Compression compression);

}  // namespace fastshard::ipc
