#include "ipc/codec.h"

#include <lz4frame.h>
#include <zstd.h>

#include <new>

#include "base/memory.h"
#include "ipc/fault.h"

namespace fastshard::ipc {
namespace {

// An LZ4 block expands at most 255 times; a larger claim is a lie, and is refused before memory is taken for it.
constexpr int64_t kLz4MaxRatio = 256;
constexpr int64_t kZstdMaxRatio = 1 << 15;  // a block of 128 KiB takes four bytes at least
constexpr int64_t kSlack = 1 << 16;

struct Lz4Context {
  Lz4Context() {
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)) != 0) throw std::bad_alloc();
  }
  ~Lz4Context() { LZ4F_freeDecompressionContext(context); }
  Lz4Context(const Lz4Context&) = delete;
  Lz4Context& operator=(const Lz4Context&) = delete;
  LZ4F_dctx* context = nullptr;
};

struct ZstdContext {
  ZstdContext() : context(ZSTD_createDCtx()) {
    if (context == nullptr) throw std::bad_alloc();
  }
  ~ZstdContext() { ZSTD_freeDCtx(context); }
  ZstdContext(const ZstdContext&) = delete;
  ZstdContext& operator=(const ZstdContext&) = delete;
  ZSTD_DCtx* context;
};

void decompress_lz4(ByteSpan frame, std::byte* out, size_t size) {
  static thread_local Lz4Context lz4;
  LZ4F_resetDecompressionContext(lz4.context);
  size_t read = 0;
  size_t written = 0;
  size_t hint = 1;
  while (hint != 0 && read < frame.size()) {
    size_t in_size = frame.size() - read;
    size_t out_size = size - written;
    hint = LZ4F_decompress(lz4.context, out + written, &out_size, frame.data() + read, &in_size, nullptr);
    if (LZ4F_isError(hint) != 0) {
      fail(Fault::kDecompression, std::string("lz4: ") + LZ4F_getErrorName(hint));
    }
    if (in_size == 0 && out_size == 0) break;  // the output is full and the frame goes on
    read += in_size;
    written += out_size;
  }
  if (hint != 0 || written != size) {
    fail(Fault::kDecompression, "lz4: the frame gives " + std::to_string(written) +
                                    (hint != 0 ? " bytes and goes on" : " bytes") + ", " + std::to_string(size) +
                                    " are promised");
  }
}

void decompress_zstd(ByteSpan frame, std::byte* out, size_t size) {
  static thread_local ZstdContext zstd;
  const size_t written = ZSTD_decompressDCtx(zstd.context, out, size, frame.data(), frame.size());
  if (ZSTD_isError(written) != 0) fail(Fault::kDecompression, std::string("zstd: ") + ZSTD_getErrorName(written));
  if (written != size) {
    fail(Fault::kDecompression,
         "zstd: the frame gives " + std::to_string(written) + " bytes, " + std::to_string(size) + " are promised");
  }
}

}  // namespace

void Storage::GiveBack::operator()(std::byte* bytes) const noexcept { give_memory(bytes, size); }

Storage::Storage(size_t size, size_t alignment) : bytes_(take_memory(size, alignment), GiveBack{size}), size_(size) {}

int64_t uncompressed_length(ByteSpan compressed, Compression compression) {
  if (compressed.size() < 8) {
    fail(Fault::kCompressedLength,
         "a compressed buffer of " + std::to_string(compressed.size()) + " bytes has no length prefix");
  }
  const auto length = load<int64_t>(compressed.data());
  const ByteSpan frame = compressed.subspan(8);
  if (length == -1) return static_cast<int64_t>(frame.size());
  if (length < 0) fail(Fault::kCompressedLength, "a compressed buffer's length prefix is " + std::to_string(length));
  if (frame.empty() && length == 0) return 0;
  if (compression == Compression::kZstd) {
    const unsigned long long content = ZSTD_getFrameContentSize(frame.data(), frame.size());
    if (content != ZSTD_CONTENTSIZE_UNKNOWN && content != ZSTD_CONTENTSIZE_ERROR &&
        content != static_cast<uint64_t>(length)) {
      fail(Fault::kCompressedLength,
           "the length prefix says " + std::to_string(length) + " bytes, the zstd frame " + std::to_string(content));
    }
  }
  const bool is_zstd = compression == Compression::kZstd;
  if (length / (is_zstd ? kZstdMaxRatio : kLz4MaxRatio) > static_cast<int64_t>(frame.size()) + kSlack) {
    fail(Fault::kCompressedLength, "the length prefix says " + std::to_string(length) +
                                       " bytes, more than a frame of " + std::to_string(frame.size()) + " can hold (" +
                                       (is_zstd ? "zstd" : "lz4") + ")");
  }
  return length;
}

Storage decompress(ByteSpan compressed, Compression compression) {
  const int64_t length = uncompressed_length(compressed, compression);
  const ByteSpan frame = compressed.subspan(8);
  Storage storage;
  try {
    storage = Storage(static_cast<size_t>(length));
  } catch (const std::bad_alloc&) {
    fail(Fault::kCompressedLength,
         "there is no memory for the " + std::to_string(length) + " bytes that a buffer says it holds");
  }
  if (frame.empty() && length == 0) return storage;  // some writers leave out the frame of nothing
  if (load<int64_t>(compressed.data()) == -1) {
    if (!frame.empty()) std::memcpy(storage.data(), frame.data(), frame.size());
  } else if (compression == Compression::kLz4) {
    decompress_lz4(frame, storage.data(), storage.size());
  } else {
    decompress_zstd(frame, storage.data(), storage.size());
  }
  return storage;
}

}  // namespace fastshard::ipc
