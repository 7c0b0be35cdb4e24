#include "base/fault_guard.h"

#include <atomic>
#include <csignal>
#include <cstring>

#include "base/fork.h"

namespace fastshard {
namespace {

thread_local constinit FaultFrame* current_frame = nullptr;
thread_local constinit bool chaining = false;  // who was there before us may call us in turn
struct sigaction
    previous_action;  // whom to call for a SIGBUS that is not ours; written by whoever holds the lock below

// Held while a handler is being installed, by generation of forks: 1 + fork_generation(), or 0 where it is free. One
// that a thread of the parent held during a fork is of an earlier generation, and nobody's.
std::atomic<uint64_t> installing{0};

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const bool is_sent = info->si_code <= 0;  // by kill or the like, and not because of a load
  if (FaultFrame* frame = current_frame; frame != nullptr && !is_sent) {
    frame->address = info->si_addr;
    siglongjmp(frame->jump, 1);  // SA_NODEFER: the signal is not blocked, so there is no mask to restore
  }
  const struct sigaction& previous = previous_action;
  const bool is_function =
      (previous.sa_flags & SA_SIGINFO) != 0 || (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  if (is_function && !chaining) {
    chaining = true;
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
      previous.sa_sigaction(signal, info, context);
    } else {
      previous.sa_handler(signal);
    }
    chaining = false;
  } else if (is_function || !is_sent || previous.sa_handler == SIG_DFL) {
    // A fault cannot be ignored: returning to the load with the default action ends the process there.
    ::signal(SIGBUS, SIG_DFL);
    if (is_sent) ::raise(SIGBUS);
  }
}

// What is installed for SIGBUS is not this handler.
[[nodiscard]] bool is_another(struct sigaction& present) noexcept {
  return sigaction(SIGBUS, nullptr, &present) == 0 &&
         ((present.sa_flags & SA_SIGINFO) == 0 || present.sa_sigaction != on_bus_error);
}

}  // namespace

FaultFrame*& current_fault_frame() noexcept { return current_frame; }

void install_fault_handler() noexcept {
  struct sigaction present;
  if (!is_another(present)) return;  // as a rule; nobody waits for a thread that holds the lock and does not run
  const uint64_t ours = 1 + fork_generation();
  uint64_t holder = 0;
  while (!installing.compare_exchange_weak(holder, ours, std::memory_order_acquire)) {
    if (holder == ours) holder = 0;  // another thread is at it: wait for its two calls
  }
  if (is_another(present)) {
    previous_action = present;
    struct sigaction action;
    std::memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
  }
  installing.store(0, std::memory_order_release);
}

}  // namespace fastshard
