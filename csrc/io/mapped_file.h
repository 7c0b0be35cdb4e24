// Files of a data set: read whole, or mapped read-only. A mapping's descriptor is closed at once, so open mappings cost
// no descriptors.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"

namespace fastshard::io {

// The whole file, in memory of our own. Throws as `MappedFile` does.
[[nodiscard]] std::vector<std::byte> read_file(const std::string& path, const std::string& name);

enum class Access { kRandom, kSequential };

// What reads through a mapping will be like: kNormal reads around what is touched, kScattered does not.
enum class Pattern { kNormal, kScattered };

class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error(kNotFound) or Error(kIo); messages carry `name`, not the path.
  MappedFile(const std::string& path, const std::string& name, Access access = Access::kRandom);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] ByteSpan bytes() const noexcept { return bytes_; }
  // Whether every page of [offset, offset + length) is in memory; the range lies inside the file.
  [[nodiscard]] bool is_resident(size_t offset, size_t length) const noexcept;
  // Says what to expect of reads to come, and that bytes will be needed, which begins to read them. Advice: failure is
  // no error. The range lies inside the file.
  void expect(Pattern pattern) const noexcept;
  void will_need(size_t offset, size_t length) const noexcept;
  // Gives pages of [offset, offset + length) back to the page cache: what was read once and is done with costs no
  // memory.
  void release(size_t offset, size_t length) const noexcept;

 private:
  void unmap() noexcept;
  ByteSpan bytes_;
};

}  // namespace fastshard::io
