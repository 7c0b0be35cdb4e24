// The order of one epoch: position -> sample id. docs/order.md, sections 4 and 5.
#pragma once

#include <cstdint>
#include <span>

#include "order/lanes.h"
#include "order/permutation.h"

namespace fastshard::order {

enum class Kind {
  kNone,    // position p is sample p
  kGlobal,  // a keyed permutation of all samples
  kBlock,   // units of blocks permuted, samples permuted within a window
};

struct OrderSpec {
  Kind kind = Kind::kNone;
  uint64_t size = 0;  // N
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t lanes = 1;
};

// Immutable, so any thread may use it.
class EpochOrder {
 public:
  // Throws kInvalid for a spec that makes no order.
  explicit EpochOrder(const OrderSpec& spec);

  [[nodiscard]] uint64_t size() const noexcept { return spec_.size; }
  [[nodiscard]] uint64_t lanes() const noexcept { return spec_.lanes; }

  // ids[i] = the sample at positions[i]. Each position below size(), ids.size() == positions.size(); the caller checks
  // it.
  void ids(std::span<const uint64_t> positions, std::span<uint64_t> ids) const;

 private:
  OrderSpec spec_;
  Permutation global_;
};

}  // namespace fastshard::order
