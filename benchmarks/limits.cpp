// What the machine can do at best: bare gathers, copies, direct reads and decompression, without a loader around them.
// Built on demand by limits.py and called through ctypes; every function returns the seconds that it took, or -1.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if __has_include(<zstd.h>) && __has_include(<lz4frame.h>)
#include <lz4frame.h>
#include <zstd.h>
#define HAVE_CODECS 1
#endif

namespace {

constexpr int kRing = 4;                 // output buffers that a thread fills in turn, as a loader's pool would
constexpr int64_t kSmallAhead = 96;      // rows
constexpr int64_t kWideAhead = 3;        // rows
constexpr int64_t kSmallWidth = 128;     // bytes
constexpr int64_t kPrefetched = 4 * 64;  // bytes of a wide row's head

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void on_threads(int threads, const std::function<void(int)>& body) {
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(body, t);
  body(0);
  for (std::thread& thread : pool) thread.join();
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<uint8_t, Free>;

// Touched, so that no page fault is measured; in huge pages if they are wanted and the system has them.
Memory allocate(size_t bytes, bool huge = false) {
  const size_t page = huge ? size_t{2} << 20 : 4096;
  const size_t rounded = (bytes + page - 1) / page * page + (huge ? 0 : page);
  Memory memory(static_cast<uint8_t*>(std::aligned_alloc(page, rounded)));
  if (huge) (void)::madvise(memory.get(), rounded, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, rounded);
  return memory;
}

template <size_t kWidth>
void copy_rows(const uint8_t* base, const int64_t* ids, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + kSmallAhead < count) {
      const uint8_t* const next = base + ids[i + kSmallAhead] * static_cast<int64_t>(kWidth);
      __builtin_prefetch(next);
      if (kWidth > 32) __builtin_prefetch(next + kWidth - 1);
    }
    std::memcpy(out + i * static_cast<int64_t>(kWidth), base + ids[i] * static_cast<int64_t>(kWidth), kWidth);
  }
}

void copy_wide(const uint8_t* base, int64_t width, const int64_t* ids, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + kWideAhead < count) {
      for (int64_t at = 0; at < std::min(width, kPrefetched); at += 64)
        __builtin_prefetch(base + ids[i + kWideAhead] * width + at);
    }
    std::memcpy(out + i * width, base + ids[i] * width, static_cast<size_t>(width));
  }
}

void gather_column(const uint8_t* base, int64_t width, const int64_t* ids, int64_t count, uint8_t* out) {
  switch (width) {
    case 4: return copy_rows<4>(base, ids, count, out);
    case 8: return copy_rows<8>(base, ids, count, out);
    case 64: return copy_rows<64>(base, ids, count, out);
    default: return copy_wide(base, width, ids, count, out);
  }
}

// Values of varying length, one after the other; `offsets_out` has count + 1 entries.
void gather_values(const uint8_t* data, const int64_t* offsets, int64_t width, const int64_t* ids, int64_t count,
                   uint8_t* out, int64_t* offsets_out) {
  for (int64_t i = 0; i < std::min<int64_t>(count, 8); ++i) __builtin_prefetch(offsets + ids[i]);
  offsets_out[0] = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i + 16 < count) __builtin_prefetch(offsets + ids[i + 16]);
    if (i + 4 < count) __builtin_prefetch(data + offsets[ids[i + 4]] * width);
    const int64_t first = offsets[ids[i]];
    const int64_t size = offsets[ids[i] + 1] - first;
    std::memcpy(out + offsets_out[i] * width, data + first * width, static_cast<size_t>(size * width));
    offsets_out[i + 1] = offsets_out[i] + size;
  }
}

}  // namespace

extern "C" {

// Rows of constant width of all columns, batch after batch; thread t makes batches t, t + threads, ...
double limit_gather(const uint8_t* const* bases, const int64_t* widths, int columns, const int64_t* ids, int64_t rows,
                    int64_t batch, int threads) {
  std::vector<std::vector<Memory>> outs(static_cast<size_t>(threads));
  for (auto& out : outs) {
    for (int i = 0; i < columns * kRing; ++i) out.push_back(allocate(static_cast<size_t>(widths[i % columns] * batch)));
  }
  return seconds_of([&] {
    on_threads(threads, [&](int t) {
      int64_t turn = 0;
      for (int64_t first = t * batch; first < rows; first += threads * batch, ++turn) {
        const int64_t count = std::min(batch, rows - first);
        for (int c = 0; c < columns; ++c) {
          const size_t slot = static_cast<size_t>((turn % kRing) * columns + c);
          gather_column(bases[c], widths[c], ids + first, count, outs[static_cast<size_t>(t)][slot].get());
        }
      }
    });
  });
}

// Values of varying length (bytes) of one column.
double limit_copies(const uint8_t* data, const int64_t* offsets, const int64_t* ids, int64_t rows, int64_t batch,
                    int threads) {
  int64_t longest = 0;
  for (int64_t i = 0; i < rows; ++i) longest = std::max(longest, offsets[i + 1] - offsets[i]);
  const auto capacity = static_cast<size_t>(longest * batch / 3);  // a batch of nothing but the longest is not met
  std::vector<std::vector<Memory>> outs(static_cast<size_t>(threads));
  for (auto& out : outs) {
    for (int i = 0; i < kRing; ++i) out.push_back(allocate(capacity));
  }
  std::atomic<bool> fits{true};
  const double seconds = seconds_of([&] {
    on_threads(threads, [&](int t) {
      std::vector<int64_t> starts(static_cast<size_t>(batch) + 1);
      int64_t turn = 0;
      for (int64_t first = t * batch; first < rows; first += threads * batch, ++turn) {
        const int64_t count = std::min(batch, rows - first);
        int64_t bytes = 0;
        for (int64_t i = 0; i < count; ++i) bytes += offsets[ids[first + i] + 1] - offsets[ids[first + i]];
        if (static_cast<size_t>(bytes) > capacity) {
          fits = false;
          return;
        }
        gather_values(data, offsets, 1, ids + first, count,
                      outs[static_cast<size_t>(t)][static_cast<size_t>(turn % kRing)].get(), starts.data());
      }
    });
  });
  return fits ? seconds : -1;
}

// W4 with a list of str per batch: one thread, which holds the GIL (call through PyDLL).
double limit_mixed(const int64_t* numbers, const double* doubles, const uint8_t* text, const int64_t* text_offsets,
                   const float* floats, const int64_t* list_offsets, const int64_t* ids, int64_t rows, int64_t batch) {
  const Memory out_numbers = allocate(static_cast<size_t>(batch) * 8);
  const Memory out_doubles = allocate(static_cast<size_t>(batch) * 8);
  const Memory out_floats = allocate(static_cast<size_t>(batch) * 64 * 4);
  const Memory out_offsets = allocate(static_cast<size_t>(batch + 1) * 8);
  bool good = true;
  const double seconds = seconds_of([&] {
    for (int64_t first = 0; good && first < rows; first += batch) {
      const int64_t count = std::min(batch, rows - first);
      const int64_t* const at = ids + first;
      gather_column(reinterpret_cast<const uint8_t*>(numbers), 8, at, count, out_numbers.get());
      gather_column(reinterpret_cast<const uint8_t*>(doubles), 8, at, count, out_doubles.get());
      gather_values(reinterpret_cast<const uint8_t*>(floats), list_offsets, 4, at, count, out_floats.get(),
                    reinterpret_cast<int64_t*>(out_offsets.get()));
      PyObject* const list = PyList_New(count);
      for (int64_t i = 0; list != nullptr && i < count; ++i) {
        if (i + 16 < count) __builtin_prefetch(text_offsets + at[i + 16]);
        if (i + 8 < count) __builtin_prefetch(text + text_offsets[at[i + 8]]);
        const int64_t start = text_offsets[at[i]];
        PyObject* const value =
            PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(text) + start, text_offsets[at[i] + 1] - start, nullptr);
        good = good && value != nullptr;
        PyList_SET_ITEM(list, i, value);
      }
      good = good && list != nullptr;
      Py_XDECREF(list);
    }
  });
  if (!good) PyErr_Clear();
  return good ? seconds : -1;
}

// W4 without Python: the text's bytes and offsets.
double limit_mixed_bytes(const int64_t* numbers, const double* doubles, const uint8_t* text,
                         const int64_t* text_offsets, const float* floats, const int64_t* list_offsets,
                         const int64_t* ids, int64_t rows, int64_t batch, int threads) {
  return seconds_of([&] {
    on_threads(threads, [&](int t) {
      const Memory out = allocate(static_cast<size_t>(batch) * 800);
      const Memory values = allocate(static_cast<size_t>(batch) * 64 * 4);
      const Memory offsets = allocate(static_cast<size_t>(batch + 1) * 8);
      for (int64_t first = t * batch; first < rows; first += threads * batch) {
        const int64_t count = std::min(batch, rows - first);
        const int64_t* const at = ids + first;
        gather_column(reinterpret_cast<const uint8_t*>(numbers), 8, at, count, out.get());
        gather_column(reinterpret_cast<const uint8_t*>(doubles), 8, at, count, out.get());
        gather_values(reinterpret_cast<const uint8_t*>(floats), list_offsets, 4, at, count, values.get(),
                      reinterpret_cast<int64_t*>(offsets.get()));
        gather_values(text, text_offsets, 1, at, count, out.get(), reinterpret_cast<int64_t*>(offsets.get()));
      }
    });
  });
}

double limit_memcpy(int64_t bytes, int64_t repeats) {
  const Memory from = allocate(static_cast<size_t>(bytes));
  const Memory to = allocate(static_cast<size_t>(bytes));
  return seconds_of([&] {
    for (int64_t i = 0; i < repeats; ++i) {
      std::memcpy(to.get(), from.get(), static_cast<size_t>(bytes));
      asm volatile("" : : "r"(to.get()) : "memory");
    }
  });
}

// Reads `size` bytes at each of `offsets` (multiples of 4096), past the page cache, `depth` at a time.
double limit_direct_reads(const char* path, const int64_t* offsets, int64_t count, int64_t size, int depth, int huge) {
  const int file = ::open(path, O_RDONLY | O_DIRECT);
  if (file < 0) return -1;
  std::vector<Memory> buffers;
  for (int t = 0; t < depth; ++t) buffers.push_back(allocate(static_cast<size_t>(size), huge != 0));
  std::atomic<int64_t> next{0};
  std::atomic<bool> good{true};
  const double seconds = seconds_of([&] {
    on_threads(depth, [&](int t) {
      for (int64_t i = next++; i < count && good; i = next++) {
        int64_t done = 0;
        while (done < size) {
          const ssize_t got = ::pread(file, buffers[static_cast<size_t>(t)].get() + done,
                                      static_cast<size_t>(size - done), offsets[i] + done);
          if (got < 0) good = false;
          if (got <= 0) break;  // the file's end
          done += got;
        }
      }
    });
  });
  ::close(file);
  return good ? seconds : -1;
}

// Decompresses frames, each into a buffer of its thread; codec 0 is ZSTD, 1 the LZ4 frame format.
double limit_decompress(int codec, const uint8_t* const* frames, const int64_t* sizes, const int64_t* raw_sizes,
                        int64_t count, int threads) {
#ifdef HAVE_CODECS
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, raw_sizes[i]);
  std::vector<Memory> outs;
  for (int t = 0; t < threads; ++t) outs.push_back(allocate(static_cast<size_t>(largest)));
  std::atomic<int64_t> next{0};
  std::atomic<bool> good{true};
  const double seconds = seconds_of([&] {
    on_threads(threads, [&](int t) {
      ZSTD_DCtx* const zstd = ZSTD_createDCtx();
      LZ4F_dctx* lz4 = nullptr;
      LZ4F_createDecompressionContext(&lz4, LZ4F_VERSION);
      uint8_t* const out = outs[static_cast<size_t>(t)].get();
      for (int64_t i = next++; i < count; i = next++) {
        const auto size = static_cast<size_t>(sizes[i]);
        const auto raw = static_cast<size_t>(raw_sizes[i]);
        if (codec == 0) {
          if (ZSTD_decompressDCtx(zstd, out, raw, frames[i], size) != raw) good = false;
        } else {
          size_t produced = raw;
          size_t consumed = size;
          const size_t left = LZ4F_decompress(lz4, out, &produced, frames[i], &consumed, nullptr);
          if (left != 0 || produced != raw) good = false;
        }
      }
      ZSTD_freeDCtx(zstd);
      LZ4F_freeDecompressionContext(lz4);
    });
  });
  return good ? seconds : -1;
#else
  (void)codec, (void)frames, (void)sizes, (void)raw_sizes, (void)count, (void)threads;
  return -1;
#endif
}

}  // extern "C"
