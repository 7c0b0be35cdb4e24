#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fastshard::io {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& name, const char* what, int error) {
  throw Error(error == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo,
              name + ": cannot " + what + ": " + std::strerror(error));
}

int open_retrying(const std::string& path) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe of that name must not make us wait
  } while (fd < 0 && errno == EINTR);
  return fd;
}

size_t size_of(const Descriptor& descriptor, const std::string& name) {
  if (descriptor.get() < 0) fail(name, "open the file", errno);
  struct stat status;
  if (::fstat(descriptor.get(), &status) != 0) fail(name, "stat the file", errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::kIo, name + ": not a regular file");
  return static_cast<size_t>(status.st_size);
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path, const std::string& name) {
  const Descriptor descriptor(open_retrying(path));
  std::vector<std::byte> bytes(size_of(descriptor, name));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::read(descriptor.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(name, "read the file", errno);
    if (count == 0) throw Error(ErrorKind::kIo, "vanished", name + ": the file became shorter while it was read");
    done += static_cast<size_t>(count);
  }
  return bytes;
}

MappedFile::MappedFile(const std::string& path, const std::string& name, Access access) {
  const Descriptor descriptor(open_retrying(path));
  const size_t size = size_of(descriptor, name);
  if (size == 0) return;  // an empty mapping is not allowed; an empty span is what it would show
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  // Mounted object stores (FUSE without the page cache) map files for one process only: the same, as nobody writes.
  if (at == MAP_FAILED && errno == ENODEV) {
    at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  }
  if (at == MAP_FAILED) fail(name, "map the file", errno);
  bytes_ = {static_cast<const std::byte*>(at), size};
  ::madvise(at, size, access == Access::kSequential ? MADV_SEQUENTIAL : MADV_NORMAL);  // advice: failure is no error
}

MappedFile::~MappedFile() { unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

bool MappedFile::is_resident(size_t offset, size_t length) const noexcept {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t end = offset + length;
#ifdef __APPLE__
  using Residence = char;
#else
  using Residence = unsigned char;
#endif
  std::array<Residence, 256> pages{};
  for (size_t at = offset / page * page; at < end; at += pages.size() * page) {
    const size_t step = std::min(pages.size() * page, end - at);
    if (::mincore(const_cast<std::byte*>(bytes_.data()) + at, step, pages.data()) != 0) return false;
    const size_t count = (step + page - 1) / page;
    if (!std::all_of(pages.begin(), pages.begin() + static_cast<ptrdiff_t>(count),
                     [](Residence in) { return (in & 1) != 0; }))
      return false;
  }
  return true;
}

void MappedFile::expect(Pattern pattern) const noexcept {
  if (bytes_.empty()) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(),
            pattern == Pattern::kScattered ? MADV_RANDOM : MADV_NORMAL);
}

void MappedFile::will_need(size_t offset, size_t length) const noexcept {
  if (length == 0) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, offset + length - begin, MADV_WILLNEED);
}

void MappedFile::release(size_t offset, size_t length) const noexcept {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = std::min(offset + length, bytes_.size()) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

void MappedFile::unmap() noexcept {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  bytes_ = {};
}

}  // namespace fastshard::io
