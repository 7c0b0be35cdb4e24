#include "pipeline/batch_stream.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/fault_guard.h"
#include "pipeline/awaited.h"
#include "pipeline/mapped_ahead.h"
#include "pipeline/stage_times.h"

namespace fastshard::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kProbedBatches = 4;  // to see whether data are in memory: so many, here and there in the epoch,
constexpr size_t kProbedSamples = 4;    // and so many samples of each
constexpr uint32_t kFoundBatches = 64;
constexpr int64_t kSlow = 100000;  // nanoseconds of a batch that is worth asking the system about

int64_t since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
}

}  // namespace

struct BatchStream::State {
  struct Slot {
    FinishedBatch batch;
    std::exception_ptr error;
    bool ready = false;
  };

  State(std::shared_ptr<ShardSet> shards, BatchPlan batches, Reading read, const Options& given,
        std::unique_ptr<ReadSource> reader)
      : set(std::move(shards)),
        plan(std::move(batches)),
        reading(std::move(read)),
        size(plan.size()),
        source(std::move(reader)),
        options(given),
        slots(std::max<uint32_t>(1, given.prefetch)) {}

  // A thread that runs the method of a state, which it keeps.
  template <typename... Arguments>
  static void start(const std::shared_ptr<State>& state, void (State::*run)(Arguments...), Arguments... arguments);
  void work(uint32_t number);
  void read_ahead();
  void advise_ahead();
  [[nodiscard]] bool wants_advice(MappedAhead& ahead, order::PermutationCache& cache) const;
  [[nodiscard]] bool claim(uint64_t& index);
  // Fills a slot that the caller claimed: with the batch, or with the error that it met.
  // Returns how long that took.
  int64_t make_into(Slot& slot, uint64_t index, order::PermutationCache& cache);
  [[nodiscard]] bool hand_out(Slot& slot, FinishedBatch& out);
  void stop() noexcept;

  const std::shared_ptr<ShardSet> set;
  const BatchPlan plan;
  const Reading reading;
  const uint64_t size;
  const std::unique_ptr<ReadSource> source;  // null: mapped

  const Options options;

  std::mutex mutex;
  std::condition_variable made;   // the batch being waited for is there, or the stream is stopped
  std::condition_variable taken;  // a slot is free, or the stream is stopped
  std::vector<Slot> slots;        // batch i in slot i % slots.size()
  uint64_t claimed = 0;           // batches below are claimed
  uint64_t delivered = 0;         // batches below are delivered
  bool stopped = false;
  std::optional<std::chrono::milliseconds> patience;  // with threads that do not end; none: endless
  std::exception_ptr failure;                         // what the consumer was told
  StreamStats stats;                                  // what the consumer counts
  order::PermutationCache consumer_cache;

  std::atomic<int64_t> plan_ns{0};
  std::atomic<int64_t> read_ns{0};
  std::atomic<int64_t> decode_ns{0};
  std::atomic<int64_t> still_ns{0};  // of gather_ns: doing nothing
  std::atomic<int64_t> gather_ns{0};
  std::atomic<int64_t> idle_ns{0};
  std::atomic<int64_t> advised{0};
  size_t running = 0;             // threads
  std::condition_variable ended;  // none is running
  std::vector<std::thread> threads;
};

template <typename... Arguments>
void BatchStream::State::start(const std::shared_ptr<State>& state, void (State::*run)(Arguments...),
                               Arguments... arguments) {
  {
    const std::lock_guard lock(state->mutex);
    ++state->running;
  }
  const auto end = [](State& of) {
    const std::lock_guard lock(of.mutex);
    if (--of.running == 0) of.ended.notify_all();
  };
  try {
    state->threads.emplace_back([=] {
      (state.get()->*run)(arguments...);
      end(*state);
    });
  } catch (...) {
    end(*state);
    throw;
  }
}

BatchStream::BatchStream(std::shared_ptr<ShardSet> set, BatchPlan plan, Reading reading, Options options,
                         std::unique_ptr<ReadSource> source)
    : generation_(ShardSet::generation()) {
  install_fault_handler();
  auto state = std::make_shared<State>(std::move(set), std::move(plan), std::move(reading), options, std::move(source));
  const uint64_t useful = std::min<uint64_t>({options.threads, state->slots.size(), state->size});
  try {
    for (uint32_t i = 0; i < useful; ++i) State::start(state, &State::work, i);
    if (state->source) {
      State::start(state, &State::read_ahead);
    } else if (options.advise > 0 && state->size > 0) {
      State::start(state, &State::advise_ahead);
    }
  } catch (const std::system_error& error) {
    state->stop();
    throw Error(ErrorKind::kIo,
                "cannot start " + std::to_string(useful) + " threads: " + error.what() + "; use a smaller threads=");
  }
  state_ = std::move(state);
}

BatchStream::~BatchStream() {
  if (forked()) {
    new std::shared_ptr<State>(std::move(state_));
    return;
  }
  state_->stop();
}

void BatchStream::stop() noexcept {
  if (!forked()) state_->stop();
}

NextStatus BatchStream::next(FinishedBatch& out, Deadline deadline) {
  if (forked()) {
    throw Error(ErrorKind::kInvalid,
                "this iterator was made before the process was forked; iterate the loader anew in the child");
  }
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.failure) std::rethrow_exception(state.failure);
  if (state.delivered == state.size) return NextStatus::kEnd;
  State::Slot& slot = state.slots[state.delivered % state.slots.size()];
  if (!slot.ready && !state.stopped && state.options.patient && !state.source && state.claimed == state.delivered) {
    // Nobody has begun the batch that is wanted now: making it here is sooner than waking a thread for it. Not where an
    // engine reads: that takes longer than a wake-up, and a consumer that waits in slices sees Ctrl-C.
    ++state.claimed;
    lock.unlock();
    const int64_t took = state.make_into(slot, state.delivered, state.consumer_cache);
    lock.lock();
    state.stats.wait_ns += took;
    slot.ready = true;
  }
  if (!slot.ready && !state.stopped) {
    const auto begin = Clock::now();
    const bool woken = state.made.wait_until(lock, deadline, [&] { return slot.ready || state.stopped; });
    state.stats.wait_ns += since(begin);
    if (!woken) return NextStatus::kTimedOut;
  }
  if (state.stopped) return NextStatus::kEnd;
  slot.ready = false;
  if (slot.error && state.options.keep_going) {
    const std::exception_ptr error = slot.error;
    slot.batch = FinishedBatch();
    ++state.delivered;
    lock.unlock();
    state.taken.notify_all();
    std::rethrow_exception(error);
  }
  if (slot.error) {
    state.failure = slot.error;
    state.stopped = true;  // later batches are of no use: the threads end
    lock.unlock();
    state.taken.notify_all();
    std::rethrow_exception(state.failure);
  }
  const bool wake = state.hand_out(slot, out);
  lock.unlock();
  if (wake) state.taken.notify_all();
  return NextStatus::kBatch;
}

bool BatchStream::take_ready(FinishedBatch& out) {
  if (forked()) return false;
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.stopped || state.failure || state.delivered == state.size) return false;
  State::Slot& slot = state.slots[state.delivered % state.slots.size()];
  if (!slot.ready || slot.error) return false;
  slot.ready = false;
  const bool wake = state.hand_out(slot, out);
  lock.unlock();
  if (wake) state.taken.notify_all();
  return true;
}

// Under the mutex. Says whether threads that wait for a free slot are to be woken: when half of the ring is free, not
// for each slot, since a wake-up costs as much as a small batch.
bool BatchStream::State::hand_out(Slot& slot, FinishedBatch& out) {
  out = std::move(slot.batch);
  slot.batch = FinishedBatch();
  ++delivered;
  ++stats.batches;
  stats.samples += static_cast<int64_t>(out.planned.ids.size());
  return 2 * (delivered + slots.size() - claimed) >= slots.size();
}

std::string BatchStream::awaited() const {
  if (forked()) return {};
  if (state_->source) {
    if (std::string oldest = state_->source->oldest_read(); !oldest.empty()) return oldest;
  }
  PlannedBatch planned;
  order::PermutationCache cache;
  uint64_t index = 0;
  {
    const std::lock_guard lock(state_->mutex);
    index = state_->delivered;
  }
  if (index < state_->size) state_->plan.fill(index, planned, cache);
  return first_missing(*state_->set, planned.ids);
}

void BatchStream::give_up(std::chrono::milliseconds patience) noexcept {
  if (forked()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->patience = patience;
  }
  if (state_->source && patience.count() > 0) state_->source->give_up(patience);  // else its reads have a deadline
}

StreamStats BatchStream::stats() const {
  if (forked()) return {};
  const std::lock_guard lock(state_->mutex);
  StreamStats stats = state_->stats;
  stats.ready =
      std::count_if(state_->slots.begin(), state_->slots.end(), [](const State::Slot& slot) { return slot.ready; });
  stats.plan_ns = state_->plan_ns;
  stats.read_ns = state_->read_ns;
  stats.decode_ns = state_->decode_ns;
  stats.gather_ns = state_->gather_ns;
  // Threads stand still for locks, too, and for a processor. Where others wait for pages it is for one that does.
  if (const int64_t still = state_->still_ns; stats.read_ns > still / 4) {
    stats.read_ns += still;
    stats.gather_ns -= still;
  }
  stats.idle_ns = state_->idle_ns;
  stats.advised = state_->advised;
  return stats;
}

ReadStats BatchStream::read_stats() const {
  return forked() || !state_->source ? ReadStats{} : state_->source->stats();
}

void BatchStream::State::stop() noexcept {
  {
    const std::lock_guard lock(mutex);
    stopped = true;
  }
  made.notify_all();
  taken.notify_all();
  if (source) source->stop();
  bool waits = true;
  {
    std::unique_lock lock(mutex);
    if (patience) {
      waits = ended.wait_for(lock, *patience, [&] { return running == 0; });
      patience = std::chrono::milliseconds(0);
    }
  }
  for (std::thread& thread : threads) {
    if (!thread.joinable()) continue;
    if (waits) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

// Asks for batch after batch; the source makes it wait when it is far enough ahead.
void BatchStream::State::read_ahead() {
  pthread_setname_np(pthread_self(), "fs-ahead");
  order::PermutationCache cache;
  PlannedBatch planned;
  try {
    for (uint64_t index = 0; index < size; ++index) {
      {
        const std::lock_guard lock(mutex);
        if (stopped) return;
        index = std::max(index, delivered);
        if (index >= size) return;
      }
      plan.fill(index, planned, cache);
      source->request(index, planned.ids);
    }
  } catch (const std::exception&) {
    // Whoever makes the batch meets the same error, at its place in the order, and reports it.
  }
}

// Whether samples here and there in the epoch are not in memory.
bool BatchStream::State::wants_advice(MappedAhead& ahead, order::PermutationCache& cache) const {
  PlannedBatch planned;
  for (uint64_t part = 0; part < kProbedBatches; ++part) {
    plan.fill(size / kProbedBatches * part, planned, cache);
    if (ahead.is_missing(std::span(planned.ids).first(std::min(planned.ids.size(), kProbedSamples)))) return true;
  }
  return false;
}

// Tells the system of batch after batch, as long as there is anything that is not in memory.
void BatchStream::State::advise_ahead() {
  pthread_setname_np(pthread_self(), "fs-advise");
  order::PermutationCache cache;
  PlannedBatch planned;
  MappedAhead ahead(set, reading.columns, options.scattered);
  uint32_t found = 0;  // batches in a row that were in memory
  try {
    if (!wants_advice(ahead, cache)) return;
    for (uint64_t index = 0; index < size; ++index) {
      {
        std::unique_lock lock(mutex);
        taken.wait(lock, [&] { return stopped || index < claimed + options.advise; });
        if (stopped) return;
        index = std::max(index, claimed);
        if (index >= size) return;
      }
      plan.fill(index, planned, cache);
      const std::span<const int64_t> ids = planned.ids;
      found = ahead.is_missing(ids.first(std::min(ids.size(), kProbedSamples))) ? 0 : found + 1;
      if (found == kFoundBatches) {
        if (!wants_advice(ahead, cache)) return;
        found = 0;
      }
      ahead.advise(ids);
      ++advised;
    }
  } catch (const std::exception&) {
    // Whoever makes the batch meets the same error, at its place in the order, and reports it.
  }
}

bool BatchStream::State::claim(uint64_t& index) {
  std::unique_lock lock(mutex);
  const auto may = [&] { return stopped || claimed == size || claimed < delivered + slots.size(); };
  if (!may()) {
    const auto begin = Clock::now();
    taken.wait(lock, may);
    idle_ns.fetch_add(since(begin), std::memory_order_relaxed);
  }
  if (stopped || claimed == size) return false;
  index = claimed++;
  return true;
}

int64_t BatchStream::State::make_into(Slot& slot, uint64_t index, order::PermutationCache& cache) {
  // Where mapped bytes have to be read is seen in batches that take long, from the second one on.
  static thread_local bool slow = true;
  slot.error = nullptr;
  const auto begin = Clock::now();
  auto planned = begin;
  const StageTimes before = stage_times();
  std::optional<FaultClock> faults;
  if (slow && !source) faults.emplace();
  try {
    plan.fill(index, slot.batch.planned, cache);
    planned = Clock::now();
    const std::vector<int64_t>& ids = slot.batch.planned.ids;
    if (options.shared) slot.batch.shared = options.shared->batch(options.batch_bytes);
    BufferPool& into = slot.batch.shared ? static_cast<BufferPool&>(*slot.batch.shared) : set->pool();
    Left left{reading.left, {}};
    Left* const leaves = left.columns.empty() ? nullptr : &left;
    slot.batch.columns = source ? source->take(index, ids, into) : set->take(ids, reading.columns, into, leaves);
    slot.batch.owners = std::move(left.owners);
    pad(slot.batch.columns, reading.paddings, ids, set->table(), into);
  } catch (...) {
    slot.error = std::current_exception();
  }
  plan_ns.fetch_add(std::chrono::duration_cast<std::chrono::nanoseconds>(planned - begin).count(),
                    std::memory_order_relaxed);
  const int64_t took = since(planned);
  slow = took > kSlow;
  const int64_t decoded = stage_times().decode_ns - before.decode_ns;
  int64_t read = stage_times().read_ns - before.read_ns;
  // A thread that decompresses may stand still for another that does.
  if (faults && decoded == 0) {
    const FaultClock::Still still = faults->stood_still();
    const int64_t more = std::clamp<int64_t>(still.ns - read, 0, took - read);
    if (still.for_pages) {
      read += more;
    } else {
      still_ns.fetch_add(more, std::memory_order_relaxed);
    }
  }
  read_ns.fetch_add(read, std::memory_order_relaxed);
  decode_ns.fetch_add(decoded, std::memory_order_relaxed);
  gather_ns.fetch_add(std::max<int64_t>(0, took - read - decoded), std::memory_order_relaxed);
  return since(begin);
}

void BatchStream::State::work(uint32_t number) {
  char name[16];
  std::snprintf(name, sizeof(name), "fs-gather-%u", number);
  pthread_setname_np(pthread_self(), name);
  order::PermutationCache cache;
  uint64_t index = 0;
  while (claim(index)) {
    Slot& slot = slots[index % slots.size()];  // ours until it is ready: no other batch in flight has this slot
    make_into(slot, index, cache);
    bool awaited = false;
    {
      const std::lock_guard lock(mutex);
      slot.ready = true;
      awaited = index == delivered;
    }
    if (awaited) made.notify_all();
  }
}

}  // namespace fastshard::pipeline
