#include "pipeline/verify.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "ipc/array_view.h"
#include "ipc/file.h"
#include "pipeline/guarded_file.h"

namespace fastshard::pipeline {
namespace {

constexpr size_t kMaxFaults = 100;  // of one shard; more say nothing new

class Verifier {
 public:
  Verifier(const std::string& root, const ipc::Schema& schema, const ShardTable& table, size_t shard,
           const BlockTable& blocks)
      : schema_(schema),
        table_(table),
        shard_(shard),
        blocks_(blocks),
        name_(table.path(shard)),
        file_(root + "/" + name_, name_, io::Access::kSequential) {}

  ShardReport run() {
    report_.columns.resize(schema_.fields.size());
    try {
      check();
    } catch (const Error& error) {  // the file itself cannot be read
      report_.faults.push_back({code_of(error), error.what()});
    }
    return std::move(report_);
  }

 private:
  void check() {
    const auto size = static_cast<int64_t>(file_.size());
    if (size != table_.bytes(shard_)) {
      add("shard_size",
          "the file has " + std::to_string(size) + " bytes, the index says " + std::to_string(table_.bytes(shard_)));
      return;  // offsets of the index mean nothing here
    }
    if (file_.hash_all() != table_.hash(shard_))
      add("shard_hash", "the xxh3-128 of the file is not what the index says");
    check_outline();
    for (size_t block = 0; block < blocks_.blocks.size() && report_.faults.size() < kMaxFaults; ++block)
      check_block(block);
  }

  void add(const std::string& code, const std::string& what) { report_.faults.push_back({code, name_ + ": " + what}); }
  void add(size_t block, const std::string& code, const std::string& what) {
    add(code, "block " + std::to_string(block) + " at offset " + std::to_string(blocks_.blocks[block].extent.offset) +
                  ": " + what);
  }

  // The file's own footer (or stream) against the index.
  void check_outline() {
    try {
      const ipc::Outline outline = ipc::parse_outline(file_, ipc::FileKind::kAuto);
      compare_schema(outline.schema);
      const auto same = [](const ipc::BlockExtent& found, const BlockEntry& entry) { return found == entry.extent; };
      if (!std::equal(outline.blocks.begin(), outline.blocks.end(), blocks_.blocks.begin(), blocks_.blocks.end(), same))
        add("shard_blocks", "the blocks of its footer are not those of the index");
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kIo) throw;
      add(error.code(), error.what());
    }
  }

  void compare_schema(const ipc::Schema& schema) {
    if (schema.fields.size() != schema_.fields.size()) {
      add("shard_schema", "its schema has " + std::to_string(schema.fields.size()) + " columns, the index " +
                              std::to_string(schema_.fields.size()));
      return;
    }
    for (size_t i = 0; i < schema_.fields.size(); ++i) {
      const ipc::Field& found = schema.fields[i];
      const ipc::Field& expected = schema_.fields[i];
      if (found.name != expected.name || !found.same_type(expected)) {
        add("shard_schema", "its column " + std::to_string(i) + " is '" + found.name + "' " + found.type_name() +
                                ", the index says '" + expected.name + "' " + expected.type_name());
      }
    }
  }

  void check_block(size_t block) {
    const BlockEntry& entry = blocks_.blocks[block];
    const auto begin = static_cast<uint64_t>(entry.extent.offset);
    const auto metadata_bytes = static_cast<uint64_t>(entry.extent.metadata_bytes);
    const std::vector<std::byte> metadata = file_.read(begin, metadata_bytes);
    if (xxh3_64(metadata) != entry.metadata_hash)
      add(block, "metadata_hash", "the xxh3 of its metadata is not what the index says");
    try {
      const ipc::BatchLayout layout = ipc::parse_block(metadata, entry.extent.body_bytes, schema_);
      if (layout.rows != entry.rows) {
        add(block, "block_rows",
            "it has " + std::to_string(layout.rows) + " rows, the index says " + std::to_string(entry.rows));
      }
      for (size_t column = 0; column < schema_.fields.size(); ++column)
        check_column(block, column, layout, begin + metadata_bytes);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kIo) throw;
      add(block, error.code(), error.what());
    }
    file_.release(begin, metadata_bytes + static_cast<uint64_t>(entry.extent.body_bytes));
  }

  // Works on a copy, so that bytes cannot change between check and use.
  void check_column(size_t block, size_t column, const ipc::BatchLayout& layout, uint64_t body) {
    const ipc::BufferExtent extent = layout.column_extent(column);
    const ipc::Storage copy =
        file_.read_storage(body + static_cast<uint64_t>(extent.offset), static_cast<uint64_t>(extent.length));
    if (xxh3_64(copy.span()) != blocks_.column_hashes[block * schema_.fields.size() + column]) {
      add(block, "column_hash", "the xxh3 of column '" + schema_.fields[column].name + "' is not what the index says");
    }
    try {
      const ipc::LoadedColumn loaded = ipc::load_column(layout, copy.span(), extent.offset, schema_, column);
      ipc::check_values(loaded.view);
      add_statistics(loaded.view, report_.columns[column]);
    } catch (const Error& error) {
      add(block, error.code(), error.what());
    }
  }

  const ipc::Schema& schema_;
  const ShardTable& table_;
  size_t shard_;
  const BlockTable& blocks_;
  std::string name_;
  GuardedFile file_;
  ShardReport report_;
};

}  // namespace

std::string code_of(const Error& error) {
  if (!error.code().empty()) return error.code();
  return error.kind() == ErrorKind::kNotFound ? "missing" : "unreadable";
}

ShardReport verify_shard(const std::string& root, const ipc::Schema& schema, const ShardTable& table, size_t shard,
                         const BlockTable& blocks) {
  try {
    return Verifier(root, schema, table, shard, blocks).run();
  } catch (const Error& error) {
    return {{{code_of(error), error.what()}}, {}};
  }
}

}  // namespace fastshard::pipeline
