#include "pipeline/verify.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/fault_guard.h"
#include "io/mapped_file.h"
#include "ipc/array_view.h"
#include "ipc/file.h"

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

  std::vector<ShardFault> run() {
    const auto size = static_cast<int64_t>(file_.bytes().size());
    if (size != table_.bytes(shard_)) {
      add("shard_size",
          "the file has " + std::to_string(size) + " bytes, the index says " + std::to_string(table_.bytes(shard_)));
      return std::move(faults_);  // offsets of the index mean nothing here
    }
    Hash128 hash;
    if (!run_guarded([&] { hash = xxh3_128(file_.bytes()); })) {
      add("vanished", "the file could not be read to its end");
      return std::move(faults_);
    }
    if (hash != table_.hash(shard_)) add("shard_hash", "the xxh3-128 of the file is not what the index says");
    check_outline();
    for (size_t block = 0; block < blocks_.blocks.size() && faults_.size() < kMaxFaults; ++block) check_block(block);
    return std::move(faults_);
  }

 private:
  void add(const std::string& code, const std::string& what) { faults_.push_back({code, name_ + ": " + what}); }
  void add(size_t block, const std::string& code, const std::string& what) {
    add(code, "block " + std::to_string(block) + " at offset " + std::to_string(blocks_.blocks[block].extent.offset) +
                  ": " + what);
  }

  // The file's own footer (or stream) against the index.
  void check_outline() {
    try {
      const ipc::Outline outline = ipc::parse_outline(file_.bytes(), ipc::FileKind::kAuto);
      if (outline.schema.fields.size() != schema_.fields.size()) {
        add("shard_schema", "its schema has " + std::to_string(outline.schema.fields.size()) + " columns, the index " +
                                std::to_string(schema_.fields.size()));
      } else {
        for (size_t i = 0; i < schema_.fields.size(); ++i) {
          const ipc::Field& found = outline.schema.fields[i];
          const ipc::Field& expected = schema_.fields[i];
          if (found.name != expected.name || !found.same_type(expected)) {
            add("shard_schema", "its column " + std::to_string(i) + " is '" + found.name + "' " + found.type_name() +
                                    ", the index says '" + expected.name + "' " + expected.type_name());
          }
        }
      }
      bool same = outline.blocks.size() == blocks_.blocks.size();
      for (size_t i = 0; same && i < blocks_.blocks.size(); ++i) {
        const ipc::BlockExtent& found = outline.blocks[i];
        const ipc::BlockExtent& expected = blocks_.blocks[i].extent;
        same = found.offset == expected.offset && found.metadata_bytes == expected.metadata_bytes &&
               found.body_bytes == expected.body_bytes;
      }
      if (!same) add("shard_blocks", "the blocks of its footer are not those of the index");
    } catch (const Error& error) {
      add(error.code(), error.what());
    }
  }

  // Works on a copy of the block, so that bytes cannot change between check and use.
  void check_block(size_t block) {
    const BlockEntry& entry = blocks_.blocks[block];
    const auto metadata_bytes = static_cast<size_t>(entry.extent.metadata_bytes);
    const ByteSpan mapped = file_.bytes().subspan(static_cast<size_t>(entry.extent.offset),
                                                  metadata_bytes + static_cast<size_t>(entry.extent.body_bytes));
    ipc::Storage copy(mapped.size());
    if (!run_guarded([&] { std::memcpy(copy.data(), mapped.data(), mapped.size()); }))
      return add(block, "vanished", "the bytes could not be read");
    file_.release(static_cast<size_t>(entry.extent.offset), mapped.size());
    const ByteSpan metadata = copy.span().first(metadata_bytes);
    const ByteSpan body = copy.span().subspan(metadata_bytes);
    if (xxh3_64(metadata) != entry.metadata_hash)
      add(block, "metadata_hash", "the xxh3 of its metadata is not what the index says");
    try {
      const ipc::Message message = ipc::parse_message(metadata);
      const ipc::BatchLayout layout = ipc::parse_batch(message.flatbuffer, entry.extent.body_bytes, schema_);
      if (layout.rows != entry.rows) {
        add(block, "block_rows",
            "it has " + std::to_string(layout.rows) + " rows, the index says " + std::to_string(entry.rows));
      }
      for (size_t column = 0; column < schema_.fields.size(); ++column) check_column(block, column, layout, body);
    } catch (const Error& error) {
      add(block, error.code(), error.what());
    }
  }

  void check_column(size_t block, size_t column, const ipc::BatchLayout& layout, ByteSpan body) {
    const ipc::BufferExtent extent = layout.column_extent(column);
    const uint64_t found =
        xxh3_64(body.subspan(static_cast<size_t>(extent.offset), static_cast<size_t>(extent.length)));
    if (found != blocks_.column_hashes[block * schema_.fields.size() + column]) {
      add(block, "column_hash", "the xxh3 of column '" + schema_.fields[column].name + "' is not what the index says");
    }
    try {
      const ipc::LoadedColumn loaded = ipc::load_column(layout, body, 0, schema_, column);
      ipc::check_values(loaded.view);
    } catch (const Error& error) {
      add(block, error.code(), error.what());
    }
  }

  const ipc::Schema& schema_;
  const ShardTable& table_;
  size_t shard_;
  const BlockTable& blocks_;
  std::string name_;
  io::MappedFile file_;
  std::vector<ShardFault> faults_;
};

}  // namespace

std::vector<ShardFault> verify_shard(const std::string& root, const ipc::Schema& schema, const ShardTable& table,
                                     size_t shard, const BlockTable& blocks) {
  try {
    return Verifier(root, schema, table, shard, blocks).run();
  } catch (const Error& error) {
    return {{error.code(), error.what()}};
  }
}

}  // namespace fastshard::pipeline
