#include "io/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace fastshard::io {
namespace {

#ifndef O_DIRECT
constexpr int O_DIRECT = 0;
#endif

int open_retrying(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// What the kernel says of direct reads of an open file; kDirectAlignment where it does not say.
int64_t alignment_of(int fd) {
#ifdef STATX_DIOALIGN
  struct statx found;
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 && (found.stx_mask & STATX_DIOALIGN) != 0) {
    const uint32_t needed = std::max({found.stx_dio_offset_align, found.stx_dio_mem_align, uint32_t{1}});
    if (found.stx_dio_offset_align != 0 && std::has_single_bit(needed) && needed <= kDirectAlignment) return needed;
  }
#else
  (void)fd;
#endif
  return kDirectAlignment;
}

}  // namespace

DirectFile::DirectFile(const std::string& path, const std::string& name, bool direct) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC;
  if (direct && O_DIRECT != 0) {
    fd_ = open_retrying(path, kFlags | O_DIRECT);
    direct_ = fd_ >= 0;
    if (direct_) alignment_ = alignment_of(fd_);
  }
  if (fd_ < 0) fd_ = open_retrying(path, kFlags);
  if (fd_ < 0) {
    throw Error(errno == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo,
                name + ": cannot open the file: " + std::strerror(errno));
  }
}

DirectFile::~DirectFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool DirectFile::make_buffered() noexcept {
  if (!direct_) return false;
  const int flags = ::fcntl(fd_, F_GETFL);
  direct_ = false;
  return flags >= 0 && ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0;
}

std::string file_system_of(const std::string& path) {
  struct statfs status;
  if (::statfs(path.c_str(), &status) != 0) return "other";
  switch (static_cast<uint64_t>(status.f_type) & 0xFFFFFFFFU) {  // magic numbers of linux/magic.h
    case 0x01021994: return "tmpfs";
    case 0x858458f6: return "ramfs";
    case 0x6969: return "nfs";
    case 0xFF534D42:
    case 0xFE534D42: return "cifs";
    case 0x65735546: return "fuse";
    case 0x0BD00BD0: return "lustre";
    case 0x00C36400: return "ceph";
    case 0x794c7630: return "overlay";
    default: return "other";
  }
}

}  // namespace fastshard::io
