#include "pipeline/read_source.h"

#include <utility>

#include "base/error.h"
#include "pipeline/gather.h"
#include "pipeline/located_rows.h"
#include "pipeline/taken_rows.h"

namespace fastshard::pipeline {

ReadSource::ReadSource(std::shared_ptr<ShardSet> set, std::vector<uint32_t> columns,
                       std::unique_ptr<io::ReadEngine> engine, const ReadSourceOptions& options)
    : set_(std::move(set)),
      queue_(set_->root(), std::move(engine), options.queue),
      blocks_(set_, std::move(columns), queue_, options.blocks) {
  const bool may_read_rows = options.visits > 0 && options.blocks.verify != Verify::kAlways;
  if (may_read_rows) rows_ = std::make_unique<RowReads>(set_, blocks_, queue_, options.visits);
}

ReadSource::~ReadSource() { stop(); }

void ReadSource::stop() noexcept {
  blocks_.stop();
  if (rows_) rows_->stop();
  queue_.stop();
}

void ReadSource::request(uint64_t number, std::span<const int64_t> ids) {
  if (rows_) return rows_->request(number, ids);
  const LocatedRows located = locate_rows(*set_, ids);
  for (const LocatedRows::Block& block : located.blocks) blocks_.request(block.shard->number(), block.block);
}

std::vector<Column> ReadSource::take(uint64_t number, std::span<const int64_t> ids, BufferPool& into) {
  TakenRows rows =
      rows_ ? TakenRows(*set_, blocks_, rows_->take(number, ids)) : TakenRows(*set_, blocks_, locate_rows(*set_, ids));
  std::vector<Column> out;
  const auto sources = std::make_unique_for_overwrite<const std::byte*[]>(ids.size());
  for (size_t column = 0; column < blocks_.columns().size(); ++column) {
    const ipc::Field& field = set_->schema().fields[blocks_.columns()[column]];
    Column& result = out.emplace_back();
    const int64_t width = plain_width(field);
    GatherStatus status = GatherStatus::kOk;
    if (width > 0 && rows.plain_sources(column, width, {sources.get(), ids.size()})) {
      std::byte* const values = make_plain_column(field, static_cast<int64_t>(ids.size()), into, result);
      status = gather_plain({sources.get(), ids.size()}, width, values);
    } else {
      status = gather(field, rows.runs(column), into, result);
    }
    if (status == GatherStatus::kOk) continue;
    rows.check_values(column);  // throws at the value that is wrong
    throw Error(ErrorKind::kCorrupt, "offsets", "column '" + field.name + "' holds a broken value");
  }
  return out;
}

ReadStats ReadSource::stats() const { return {queue_.stats(), blocks_.stats(), rows_ ? rows_->rows_read() : 0}; }

}  // namespace fastshard::pipeline
