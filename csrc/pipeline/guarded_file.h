// A mapped file whose bytes may vanish while it is mapped. What must be whole before it is checked is copied out of it
// under a fault guard; whoever reads it in place brings a guard of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "io/mapped_file.h"
#include "ipc/byte_source.h"
#include "ipc/codec.h"

namespace fastshard::pipeline {

class GuardedFile final : public ipc::ByteSource {
 public:
  GuardedFile() = default;
  // Messages of errors begin with `name`. Throws as io::MappedFile does.
  GuardedFile(const std::string& path, std::string name, io::Access access = io::Access::kRandom)
      : path_(path), name_(std::move(name)), file_(path, name_, access) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // To be read under a guard.
  [[nodiscard]] ByteSpan bytes() const noexcept { return file_.bytes(); }

  [[nodiscard]] uint64_t size() const noexcept override { return file_.bytes().size(); }
  // These throw Error(kIo, "vanished") where the bytes cannot be had. The range lies inside the file.
  void copy(uint64_t offset, std::span<std::byte> out) const;
  [[nodiscard]] std::vector<std::byte> read(uint64_t offset, uint64_t length) const override;
  [[nodiscard]] ipc::Storage read_storage(uint64_t offset, uint64_t length) const;
  [[nodiscard]] uint64_t hash(uint64_t offset, uint64_t length) const;
  // Of the whole file; gives its pages back on the way.
  [[nodiscard]] Hash128 hash_all() const;

  [[nodiscard]] bool is_resident(uint64_t offset, uint64_t length) const noexcept {
    return file_.is_resident(offset, length);
  }
  void expect(io::Pattern pattern) const noexcept { file_.expect(pattern); }
  void will_need(uint64_t offset, uint64_t length) const noexcept { file_.will_need(offset, length); }
  void release(uint64_t offset, uint64_t length) const noexcept { file_.release(offset, length); }
  // For a guard that ended early: `what` could not be read.
  [[noreturn]] void throw_vanished(const std::string& what) const;

 private:
  std::string path_;
  std::string name_;
  io::MappedFile file_;
};

}  // namespace fastshard::pipeline
