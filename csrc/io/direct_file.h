// A file to read from with an engine: past the page cache where the file system allows it.
#pragma once

#include <cstdint>
#include <string>

namespace fastshard::io {

// O_DIRECT wants offsets, lengths and memory in multiples of the device's block; this is one for all. A power of two,
// as alignments of files are.
constexpr int64_t kDirectAlignment = 4096;

class DirectFile {
 public:
  // Throws Error(kNotFound | kIo); messages carry `name`.
  DirectFile(const std::string& path, const std::string& name, bool direct);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  // What offsets, lengths and memory of reads must be multiples of; at most kDirectAlignment, 1 where nothing is asked.
  [[nodiscard]] int64_t alignment() const noexcept { return alignment_; }
  // Turns O_DIRECT off: for a file system that accepted it and then refused a read. False if it was off.
  [[nodiscard]] bool make_buffered() noexcept;

 private:
  int fd_ = -1;
  bool direct_ = false;
  int64_t alignment_ = 1;
};

// "tmpfs", "nfs", "cifs", "fuse", "overlay", ...; "other" for local disks and what is not known.
[[nodiscard]] std::string file_system_of(const std::string& path);

}  // namespace fastshard::io
