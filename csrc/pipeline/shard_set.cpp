#include "pipeline/shard_set.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "base/error.h"
#include "base/fault_guard.h"
#include "base/fork.h"
#include "io/mapped_file.h"
#include "pipeline/column_edit.h"
#include "pipeline/gather.h"
#include "pipeline/located_rows.h"

namespace fastshard::pipeline {
namespace {

ShardTable read_table(const ShardSetOptions& options) {
  const std::vector<std::byte> bytes = io::read_file(options.root + "/" + options.shard_table, options.shard_table);
  if (xxh3_128(bytes) != options.shard_table_hash) {
    throw Error(ErrorKind::kCorrupt, "table_hash",
                options.shard_table +
                    " (the shard table): its xxh3-128 is not what index.json says; restore the file, or convert the "
                    "source again");
  }
  return ShardTable::parse(bytes, options.shard_table, options.rows, options.shards);
}

// A sum of sizes, or the largest number where it would pass that.
int64_t add_saturating(int64_t a, int64_t b) {
  int64_t sum = 0;
  return checked_add(a, b, sum) ? sum : INT64_MAX;
}

// Compares what the rows are about to be taken from, as far as it lies uncompressed in the mapping.
void check_again(const LocatedRows& located, std::span<const uint32_t> columns) {
  for (const LocatedRows::Block& block : located.blocks) {
    for (const uint32_t column : columns) block.shard->check_mapped(block.block, column);
  }
}

bool consecutive(std::span<const int64_t> ids) {
  if (ids.empty() || ids.back() - ids.front() != static_cast<int64_t>(ids.size()) - 1) return false;
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] != ids[i - 1] + 1) return false;
  }
  return true;
}

// A column of every block that a call reads. What was decompressed and is kept stays kept while this lives, if all of
// it is; else this holds a reference to each.
class BlockColumns {
 public:
  BlockColumns(const LocatedRows& located, uint32_t column, DecodedCache& cache)
      : located_(located), column_(column), cache_(cache) {}

  // Where the first value of each block lies; false where some block does not hold plain rows of constant width.
  // Throws as Shard::column does.
  bool plain(std::span<const std::byte*> first_values) {
    size_t known = 0;
    for (; known < first_values.size(); ++known) {
      const LocatedRows::Block& block = located_.blocks[known];
      const std::byte* const first = block.shard->plain_values(block.block, column_);
      if (first == nullptr || first == Shard::kNotPlain) break;
      first_values[known] = first;
    }
    if (known == first_values.size()) return true;
    find_or_load();
    for (size_t i = 0; i < first_values.size(); ++i) {
      first_values[i] = plain_values_of(columns_[i]->view);
      if (first_values[i] == nullptr) return false;
    }
    return true;
  }

  // The rows of all blocks, in the order of the call.
  std::vector<Run> runs() {
    find_or_load();
    std::vector<Run> runs;
    runs.reserve(located_.rows.size());
    for (const LocatedRow& row : located_.rows) add_row(runs, &columns_[row.block]->view, row.row);
    return runs;
  }

  // Whether all of it lies in mappings, which the shards that were located keep; to be asked first.
  bool in_mappings() {
    if (!cache_.unused()) return false;
    load();
    return std::all_of(held_.begin(), held_.end(), [](const ColumnRef& column) { return column.use_count() == 0; });
  }

  // Others may change the cache again; nothing that was found is used any more.
  void let_go() { reader_.let_go(); }

 private:
  void find_or_load() {
    if (columns_.empty() && !find_kept()) load();
  }

  [[nodiscard]] DecodedCache::Key key(size_t i) const {
    return {located_.blocks[i].shard->number(), located_.blocks[i].block, column_};
  }

  bool find_kept() {
    if (cache_.unused()) return false;
    reader_ = DecodedCache::Reader(cache_);
    for (size_t i = 0; i < located_.blocks.size(); ++i) {
      columns_.push_back(reader_.find(key(i)));
      if (columns_.back() != nullptr) continue;
      columns_.clear();
      reader_.let_go();
      return false;
    }
    return true;
  }

  // First what nobody else is decompressing just now, so that threads that want the same blocks share the work.
  void load() {
    if (!held_.empty() || located_.blocks.empty()) return;
    held_.resize(located_.blocks.size());
    columns_.assign(located_.blocks.size(), nullptr);
    std::vector<size_t> others;
    for (size_t i = 0; i < held_.size(); ++i) {
      if (cache_.is_loading(key(i))) {
        others.push_back(i);
      } else {
        load(i);
      }
    }
    for (const size_t i : others) load(i);
  }

  void load(size_t i) {
    const LocatedRows::Block& block = located_.blocks[i];
    held_[i] = block.shard->column(block.block, column_, cache_);
    columns_[i] = held_[i].get();
  }

  const LocatedRows& located_;
  const uint32_t column_;
  DecodedCache& cache_;
  std::vector<const ipc::LoadedColumn*> columns_;
  DecodedCache::Reader reader_;
  std::vector<ColumnRef> held_;
};

}  // namespace

struct ShardSet::State {
  State(const ShardSetOptions& options, size_t columns, uint64_t forks)
      : generation(forks), checked(columns), cache(options.cache_bytes), pool(BufferPool::make(size_t{128} << 20)) {}

  struct Open {
    std::shared_ptr<Shard> shard;
    std::list<uint32_t>::iterator used;
  };

  const uint64_t generation;
  CheckedColumns checked;
  std::mutex mutex;
  std::unordered_map<uint32_t, Open> open;  // by shard number
  std::list<uint32_t> order;                // most recently used first
  GuardedFile blocks_file;
  DecodedCache cache;
  std::shared_ptr<BufferPool> pool;
};

ShardSet::ShardSet(ShardSetOptions options)
    : options_(std::move(options)),
      schema_(ipc::parse_schema_message(options_.schema_message)),
      table_(read_table(options_)) {
  install_fault_handler();
  int64_t raw = 0;
  int64_t stored = 0;
  for (size_t i = 0; i < table_.size(); ++i) {
    raw = add_saturating(raw, table_.raw_bytes(i));
    stored = add_saturating(stored, table_.bytes(i));
  }
  const bool fits_cache = stored >= raw || raw <= static_cast<int64_t>(options_.cache_bytes);
  small_ = table_.size() <= options_.max_open && fits_cache;
  (void)state();
}

ShardSet::~ShardSet() {
  State* const state = state_.load();
  // A state made before a fork belongs to the parent: its locks may be held by a thread that is not here.
  if (state != nullptr && state->generation == fork_generation()) delete state;
}

ShardSet::State& ShardSet::state() {
  const uint64_t now = fork_generation();
  State* state = state_.load(std::memory_order_acquire);
  if (state != nullptr && state->generation == now) return *state;
  install_fault_handler();
  auto* const fresh = new State(options_, schema_.fields.size(), now);
  if (!state_.compare_exchange_strong(state, fresh, std::memory_order_acq_rel)) {
    delete fresh;
    return *state;
  }
  return *fresh;  // the old one, of before a fork, is left to the parent
}

uint64_t ShardSet::generation() noexcept { return fork_generation(); }

DecodedCache& ShardSet::cache() { return state().cache; }
BufferPool& ShardSet::pool() { return *state().pool; }

BlockTable ShardSet::block_table(State& state, size_t shard) const {
  const std::string& name = options_.block_table;
  if (state.blocks_file.size() == 0) {
    GuardedFile file(options_.root + "/" + name, name);
    if (static_cast<int64_t>(file.size()) != options_.block_table_bytes) {
      throw Error(ErrorKind::kCorrupt, "table_size",
                  name + " (the block table): the file has " + std::to_string(file.size()) +
                      " bytes, index.json says " + std::to_string(options_.block_table_bytes));
    }
    state.blocks_file = std::move(file);
  }
  const auto where = [&] {
    return name + " (the block table): the entry of " + std::string(table_.path(shard)) + ": ";
  };
  const auto offset = static_cast<uint64_t>(table_.table_offset(shard));
  const auto length = static_cast<uint64_t>(table_.table_bytes(shard));
  if (!range_fits(offset, length, state.blocks_file.size()))
    throw Error(ErrorKind::kCorrupt, "table_value", where() + "it lies outside the file");
  const std::vector<std::byte> message = state.blocks_file.read(offset, length);
  if (xxh3_64(message) != table_.table_hash(shard)) {
    throw Error(ErrorKind::kCorrupt, "table_hash",
                where() + "its xxh3 is not what the shard table says; restore the file, or convert the source again");
  }
  try {
    return BlockTable::parse(message, table_, shard, schema_.fields.size());
  } catch (const Error& error) {
    throw Error(error.kind(), error.code(), where() + error.what());
  }
}

std::shared_ptr<Shard> ShardSet::shard(size_t number) {
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  const auto key = static_cast<uint32_t>(number);
  if (const auto found = state.open.find(key); found != state.open.end()) {
    if (found->second.used != state.order.begin())
      state.order.splice(state.order.begin(), state.order, found->second.used);
    return found->second.shard;
  }
  const Shard::Context context{&schema_, &counters_, &state.checked, options_.verify};
  auto opened = std::make_shared<Shard>(context, options_.root, table_, number, block_table(state, number));
  while (state.open.size() >= options_.max_open) {
    state.open.erase(state.order.back());
    state.order.pop_back();
  }
  state.order.push_front(key);
  state.open.emplace(key, State::Open{opened, state.order.begin()});
  return opened;
}

std::shared_ptr<Shard> ShardSet::open_shard(size_t number) {
  State& state = this->state();
  const std::unique_lock lock(state.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return nullptr;
  const auto found = state.open.find(static_cast<uint32_t>(number));
  return found == state.open.end() ? nullptr : found->second.shard;
}

std::vector<Column> ShardSet::take(std::span<const int64_t> ids, std::span<const uint32_t> columns, BufferPool& into,
                                   Left* left) {
  install_fault_handler();
  const auto rows = static_cast<uint64_t>(this->rows());
  for (const int64_t id : ids) {
    if (static_cast<uint64_t>(id) >= rows) {
      throw Error(ErrorKind::kOutOfRange,
                  "there is no sample " + std::to_string(id) + ": the data set has " + std::to_string(rows));
    }
  }
  std::vector<Column> out;
  if (small_ || part_length(ids, columns) == ids.size()) {
    take_part(ids, columns, into, out, left);
    return out;
  }
  // More shards or decompressed blocks than may be held at once: read in id order, a part at a time, so that each is
  // visited once, and put the rows into the order asked for at the end.
  std::vector<int64_t> order(ids.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)]; });
  std::vector<int64_t> sorted(ids.size());
  for (size_t i = 0; i < order.size(); ++i) sorted[i] = ids[static_cast<size_t>(order[i])];
  std::vector<std::vector<Column>> parts(columns.size());
  for (std::span<const int64_t> rest = sorted; !rest.empty();) {
    const size_t length = part_length(rest, columns);
    std::vector<Column> part;
    take_part(rest.first(length), columns, pool(), part);
    for (size_t c = 0; c < columns.size(); ++c) parts[c].push_back(std::move(part[c]));
    rest = rest.subspan(length);
  }
  std::vector<int64_t> place(ids.size());
  for (size_t i = 0; i < order.size(); ++i) place[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  for (std::vector<Column>& column_parts : parts)
    out.push_back(reorder(concatenate(std::move(column_parts), pool()), place, into));
  return out;
}

size_t ShardSet::part_length(std::span<const int64_t> ids, std::span<const uint32_t> columns) const {
  const bool all_columns = columns.size() == schema_.fields.size();
  std::unordered_set<uint64_t> shards;
  std::unordered_set<uint64_t> blocks;
  int64_t bytes = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const ShardPlace place = table_.locate(ids[i]);
    if (shards.insert(place.shard).second && shards.size() > options_.max_open) return i;
    const int64_t block_count = table_.blocks(place.shard);
    const int64_t block_rows = std::max<int64_t>(1, table_.rows(place.shard) / block_count);
    const auto block = static_cast<uint64_t>(place.row / block_rows);
    if (table_.raw_bytes(place.shard) > table_.bytes(place.shard) &&
        blocks.insert((uint64_t{place.shard} << 32) | block).second) {
      bytes = add_saturating(bytes, table_.raw_bytes(place.shard) / block_count / (all_columns ? 1 : 2));
      if (bytes > static_cast<int64_t>(options_.cache_bytes) && i > 0) return i;
    }
  }
  return ids.size();
}

void ShardSet::take_part(std::span<const int64_t> ids, std::span<const uint32_t> columns, BufferPool& into,
                         std::vector<Column>& out, Left* left) {
  State& state = this->state();
  const LocatedRows located = locate_rows(*this, ids);
  const auto fail = [&](GatherStatus status, uint32_t column) {
    for (const LocatedRows::Block& block : located.blocks) {
      if (status == GatherStatus::kVanished) {
        block.shard->check_readable(block.block, column);
      } else {
        block.shard->check_values(block.block, column, state.cache);
      }
    }
    if (status == GatherStatus::kVanished) located.blocks.front().shard->throw_vanished(located.blocks.front().block);
    throw Error(ErrorKind::kCorrupt, "offsets",
                "column '" + schema_.fields[column].name + "' held a broken value while it was read");
  };

  if (options_.verify == Verify::kAlways) check_again(located, columns);
  const bool in_order = consecutive(ids);
  const auto sources = std::make_unique_for_overwrite<const std::byte*[]>(ids.size());
  std::vector<const std::byte*> first_values(located.blocks.size());
  if (left != nullptr) left->owners.insert(left->owners.end(), located.shards.begin(), located.shards.end());
  for (const uint32_t column : columns) {
    const ipc::Field& field = schema_.fields[column];
    Column& result = out.emplace_back();
    BlockColumns blocks(located, column, state.cache);
    const int64_t width = in_order ? 0 : plain_width(field);  // consecutive rows are copied block by block below
    GatherStatus status = GatherStatus::kOk;
    if (width > 0 && blocks.plain(first_values)) {
      row_sources(located, first_values, width, sources.get());
      std::byte* const values = make_plain_column(field, static_cast<int64_t>(ids.size()), into, result);
      status = gather_plain({sources.get(), ids.size()}, width, values);
    } else {
      // What was decompressed is not left: batches that wait would keep it, whatever the cache's budget says.
      const bool leaves = left != nullptr && left->columns[out.size() - 1] && blocks.in_mappings();
      status = gather(field, blocks.runs(), into, result, leaves);
    }
    blocks.let_go();
    if (status != GatherStatus::kOk) fail(status, column);
  }
}

ShardReport ShardSet::verify(size_t number) {
  install_fault_handler();
  State& state = this->state();
  BlockTable blocks;
  try {
    const std::lock_guard lock(state.mutex);
    blocks = block_table(state, number);
  } catch (const Error& error) {
    return {{{code_of(error), error.what()}}, {}};
  }
  return verify_shard(options_.root, schema_, table_, number, blocks);
}

void ShardSet::check(size_t number, std::span<const uint32_t> columns) {
  install_fault_handler();
  const std::shared_ptr<Shard> checked = shard(number);
  for (size_t block = 0; block < checked->blocks(); ++block) {
    for (const uint32_t column : columns) checked->check(block, column);
  }
}

Stats ShardSet::stats() {
  State& state = this->state();
  Stats stats;
  stats.shards_opened = counters_.shards_opened;
  stats.blocks_parsed = counters_.blocks_parsed;
  stats.columns_checked = counters_.columns_checked;
  stats.bytes_checked = counters_.bytes_checked;
  stats.columns_decompressed = counters_.columns_decompressed;
  stats.cache_bytes = static_cast<int64_t>(state.cache.held_bytes());
  stats.fresh_buffers = static_cast<int64_t>(state.pool->fresh_allocations());
  const std::lock_guard lock(state.mutex);
  stats.shards_open = static_cast<int64_t>(state.open.size());
  return stats;
}

void ShardSet::close() {
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  state.open.clear();
  state.order.clear();
  state.blocks_file = GuardedFile();
  state.checked.clear();
}

}  // namespace fastshard::pipeline
