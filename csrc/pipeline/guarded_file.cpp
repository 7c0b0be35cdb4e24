#include "pipeline/guarded_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "base/error.h"
#include "base/fault_guard.h"

namespace fastshard::pipeline {
namespace {

std::string range_text(uint64_t offset, uint64_t length) {
  return std::to_string(length) + " bytes at offset " + std::to_string(offset);
}

}  // namespace

void GuardedFile::copy(uint64_t offset, std::span<std::byte> out) const {
  const std::byte* const from = file_.bytes().data() + offset;
  if (!out.empty() && !run_guarded([&] { std::memcpy(out.data(), from, out.size()); }))
    throw_vanished(range_text(offset, out.size()));
}

std::vector<std::byte> GuardedFile::read(uint64_t offset, uint64_t length) const {
  std::vector<std::byte> bytes(length);
  copy(offset, bytes);
  return bytes;
}

ipc::Storage GuardedFile::read_storage(uint64_t offset, uint64_t length) const {
  ipc::Storage bytes(length);
  copy(offset, {bytes.data(), length});
  return bytes;
}

uint64_t GuardedFile::hash(uint64_t offset, uint64_t length) const {
  const ByteSpan bytes = file_.bytes().subspan(offset, length);
  uint64_t found = 0;
  if (!run_guarded([&] { found = xxh3_64(bytes); })) throw_vanished(range_text(offset, length));
  return found;
}

Hash128 GuardedFile::hash_all() const {
  constexpr size_t kStep = size_t{8} << 20;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  const ByteSpan bytes = file_.bytes();
  for (size_t offset = 0; offset < bytes.size(); offset += kStep) {
    const ByteSpan step = bytes.subspan(offset, std::min(kStep, bytes.size() - offset));
    if (!run_guarded([&] { XXH3_128bits_update(state.get(), step.data(), step.size()); }))
      throw_vanished(range_text(offset, step.size()));
    release(offset, step.size());
  }
  return canonical(XXH3_128bits_digest(state.get()));
}

void GuardedFile::throw_vanished(const std::string& what) const {
  struct stat present;
  std::string why = "its device failed";
  if (::stat(path_.c_str(), &present) != 0) {
    why = "it is gone";
  } else if (const auto found = static_cast<uint64_t>(present.st_size); found != size()) {
    why = "the file has " + std::to_string(found) + " bytes now, and had " + std::to_string(size()) +
          " when it was opened";
  }
  throw Error(ErrorKind::kIo, "vanished",
              name_ + ": " + what + ": could not be read: " + why + "; restore the file and open the data set again");
}

}  // namespace fastshard::pipeline
