// A mapped file can shrink or its device fail under us; the kernel then raises SIGBUS at the load. `run_guarded` turns
// that into a return value.
//
// Contract: the body must not own anything (no destructors may be skipped), must not throw and must not call Python;
// what it writes before the fault is undefined. Guards nest. The handler chains to whoever was there before, and others
// replace it (torch's worker loop does), so `install_fault_handler` is called again wherever a new series of reads
// begins.
#pragma once

#include <atomic>
#include <csetjmp>
#include <cstddef>

namespace fastshard {

struct FaultFrame {
  sigjmp_buf jump;
  FaultFrame* previous;
  const void* address;
};

[[nodiscard]] FaultFrame*& current_fault_frame() noexcept;

void install_fault_handler() noexcept;

// Returns true where `body` ran to its end; false after a SIGBUS, with the address that faulted.
template <typename Body>
[[nodiscard]] bool run_guarded(Body&& body, const void** address = nullptr) noexcept {
  FaultFrame frame;
  FaultFrame*& current = current_fault_frame();
  frame.previous = current;
  frame.address = nullptr;
  if (sigsetjmp(frame.jump, 0) != 0) {
    current_fault_frame() = frame.previous;
    if (address != nullptr) *address = frame.address;
    return false;
  }
  current = &frame;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  body();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  current = frame.previous;
  return true;
}

}  // namespace fastshard
