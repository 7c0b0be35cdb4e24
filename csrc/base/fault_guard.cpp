#include "base/fault_guard.h"

#include <csignal>
#include <cstring>
#include <mutex>

namespace fastshard {
namespace {

thread_local constinit FaultFrame* current_frame = nullptr;
struct sigaction previous_action;  // whom to call for a SIGBUS that is not ours; written under the mutex below

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (FaultFrame* frame = current_frame; frame != nullptr) {
    frame->address = info->si_addr;
    siglongjmp(frame->jump, 1);  // SA_NODEFER: the signal is not blocked, so there is no mask to restore
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    // A synchronous SIGBUS cannot be ignored: return to the faulting load with the default action and die there.
    ::signal(SIGBUS, SIG_DFL);
  } else {
    previous_action.sa_handler(signal);
  }
}

}  // namespace

FaultFrame*& current_fault_frame() noexcept { return current_frame; }

void install_fault_handler() noexcept {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  struct sigaction present;
  if (sigaction(SIGBUS, nullptr, &present) != 0) return;
  if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == on_bus_error) return;
  previous_action = present;
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace fastshard
