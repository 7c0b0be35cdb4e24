// Which samples of a data set a view has: an ascending list of different ids. docs/order.md, section 8.
//
// It is kept in the smallest of three forms: runs of consecutive ids, the ids, or one bit for each sample of the data
// set. So a random nine tenths of 10^8 samples take 14 MB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "order/permutation.h"

namespace fastshard::order {

// Immutable, so any thread may use it. A *place* is a number below size(): the place-th id of the list.
class Selection {
 public:
  struct Run {
    uint64_t first;  // id
    uint64_t end;    // one past the last id
    friend bool operator==(const Run&, const Run&) = default;
  };

  // Each throws kInvalid unless what it is given is ascending without repeats and below `universe`.
  [[nodiscard]] static Selection of_ids(std::span<const uint64_t> ids, uint64_t universe);
  [[nodiscard]] static Selection of_runs(std::span<const Run> runs, uint64_t universe);
  // Bit i % 64 of word i / 64 stands for id i; ceil(universe / 64) words, no bit beyond the universe.
  [[nodiscard]] static Selection of_words(std::vector<uint64_t> words, uint64_t universe);

  // For each two neighbours of `cuts` the ids that the permutation takes into [cut, next cut). `cuts` ascends, up to
  // permutation.size() at most; throws kInvalid otherwise.
  [[nodiscard]] static std::vector<Selection> split(const Permutation& permutation, std::span<const uint64_t> cuts);

  [[nodiscard]] uint64_t size() const noexcept { return size_; }
  [[nodiscard]] uint64_t universe() const noexcept { return universe_; }
  [[nodiscard]] size_t memory() const noexcept;  // bytes

  // ids[i] = the id at places[i]; each place below size(), both spans of one length; the caller checks it. They may be
  // the same span.
  void ids(std::span<const uint64_t> places, std::span<uint64_t> ids) const noexcept;
  // The ids at places first, first + 1, ...; first + ids.size() at most size(); the caller checks it.
  void fill(uint64_t first, std::span<uint64_t> ids) const noexcept;
  // How many ids are below `bound`, which is at most universe().
  [[nodiscard]] uint64_t rank(uint64_t bound) const noexcept;

  // xxh3-128 of the ids, each as 8 bytes, little-endian, in ascending order.
  [[nodiscard]] Hash128 digest() const;

  // The ids in [begin, end), counted from `begin`. Throws kInvalid unless begin <= end <= universe().
  [[nodiscard]] Selection clip(uint64_t begin, uint64_t end) const;

  // The ids at the places that `inner` has; inner.universe() == size(), else throws kInvalid.
  [[nodiscard]] Selection compose(const Selection& inner) const;

  struct Runs {
    std::vector<uint64_t> first_ids;
    std::vector<uint64_t> ends;  // places up to and with this run
  };
  struct List {
    std::vector<uint64_t> ids;
  };
  struct Bits {
    std::vector<uint64_t> words;   // whole groups of 8
    std::vector<uint64_t> before;  // ids before each group, and in all
    std::vector<uint64_t> hints;   // the group of every 512th id, and the last group
  };
  using Form = std::variant<Runs, List, Bits>;
  [[nodiscard]] const Form& form() const noexcept { return form_; }

 private:
  Selection(uint64_t size, uint64_t universe, Form form) : size_(size), universe_(universe), form_(std::move(form)) {}

  uint64_t size_;
  uint64_t universe_;
  Form form_;
};

// Collects ids that come piece by piece, in any order; one bit of memory for each id of the universe.
class SelectionBuilder {
 public:
  // Throws kInvalid if the universe is larger than 2^62.
  explicit SelectionBuilder(uint64_t universe);

  // Throws kInvalid for an id that is not below the universe, or that came before.
  void add(std::span<const uint64_t> ids);
  // Leaves nothing behind.
  [[nodiscard]] Selection finish() &&;

 private:
  uint64_t universe_;
  std::vector<uint64_t> words_;
};

}  // namespace fastshard::order
