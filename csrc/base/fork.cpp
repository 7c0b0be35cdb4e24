#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace fastshard {
namespace {

std::atomic<uint64_t> generation{0};
std::atomic<uint64_t> begun{0};

[[maybe_unused]] const int registered = pthread_atfork([] { begun.fetch_add(1, std::memory_order_seq_cst); }, nullptr,
                                                       [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint64_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }
uint64_t forks_begun() noexcept { return begun.load(std::memory_order_seq_cst); }

}  // namespace fastshard
