#include "order/epoch_order.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "order/permutation_batch.h"

namespace fastshard::order {

EpochOrder::EpochOrder(const OrderSpec& spec)
    : spec_(spec), global_(spec.size, hash_words(Purpose::kGlobal, {spec.seed, spec.epoch, 0})) {
  if (spec.size > Permutation::kMaxSize) {
    throw Error(ErrorKind::kInvalid, "an order has at most 2^62 samples, got " + std::to_string(spec.size));
  }
  if (spec.kind == Kind::kBlock) throw Error(ErrorKind::kInvalid, "order kind \"block\" is not there yet");
  if (spec.lanes != 1) throw Error(ErrorKind::kInvalid, "lanes other than 1 are not there yet");
}

void EpochOrder::ids(std::span<const uint64_t> positions, std::span<uint64_t> ids) const {
  if (spec_.kind == Kind::kNone) {
    std::copy(positions.begin(), positions.end(), ids.begin());
  } else {
    evaluate(global_, positions, ids);
  }
}

}  // namespace fastshard::order
