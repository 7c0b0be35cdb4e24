#include "order/selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "base/error.h"
#include "order/permutation_batch.h"

namespace fastshard::order {
namespace {

constexpr uint64_t kWordBits = 64;
constexpr uint64_t kGroupWords = 8;
constexpr uint64_t kGroupBits = kGroupWords * kWordBits;
constexpr uint64_t kHintStep = 512;
constexpr size_t kChunk = 4096;  // ids that are on their way at a time

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorKind::kInvalid, message); }

void check_universe(uint64_t universe) {
  if (universe > Permutation::kMaxSize) {
    invalid("a data set has at most 2^62 samples, got " + std::to_string(universe));
  }
}

constexpr uint64_t words_of(uint64_t universe) { return (universe + kWordBits - 1) / kWordBits; }

// Which form is the smallest.
enum class Best { kRuns, kList, kBits };

Best best_form(uint64_t size, uint64_t runs, uint64_t universe) {
  const uint64_t of_runs = 16 * runs;
  const uint64_t of_list = size > UINT64_MAX / 8 ? UINT64_MAX : 8 * size;
  const uint64_t of_bits = universe / 8 + universe / 64 + 24;  // the bits and what finds them
  if (of_runs <= of_list && of_runs <= of_bits) return Best::kRuns;
  return of_list <= of_bits ? Best::kList : Best::kBits;
}

// kNthBit[byte][n]: the n-th set bit of a byte.
constexpr std::array<std::array<uint8_t, 8>, 256> make_nth_bits() {
  std::array<std::array<uint8_t, 8>, 256> table{};
  for (size_t byte = 0; byte < table.size(); ++byte) {
    size_t n = 0;
    for (uint8_t bit = 0; bit < 8; ++bit) {
      if ((byte >> bit & 1) != 0) table[byte][n++] = bit;
    }
  }
  return table;
}
constexpr std::array<std::array<uint8_t, 8>, 256> kNthBit = make_nth_bits();

// The n-th set bit of a word that has more than n, without branches.
[[gnu::always_inline]] inline uint64_t nth_bit(uint64_t word, uint64_t n) noexcept {
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kTops = 0x8080808080808080;
  uint64_t counts = word - ((word >> 1) & 0x5555555555555555);
  counts = (counts & 0x3333333333333333) + ((counts >> 2) & 0x3333333333333333);
  counts = ((counts + (counts >> 4)) & 0x0f0f0f0f0f0f0f0f) * kOnes;  // of each byte and those below it
  const uint64_t whole = ((n * kOnes | kTops) - counts) & kTops;     // a top bit for each byte that ends at n or before
  const auto shift = static_cast<uint64_t>(std::popcount(whole)) * 8;
  const uint64_t below = (counts << 8) >> shift & 0xff;
  return shift + kNthBit[word >> shift & 0xff][n - below];
}

Selection::Bits make_bits(std::vector<uint64_t> words, uint64_t size) {
  Selection::Bits bits;
  bits.words = std::move(words);
  bits.words.resize((bits.words.size() + kGroupWords - 1) / kGroupWords * kGroupWords);
  bits.words.shrink_to_fit();
  bits.before.reserve(bits.words.size() / kGroupWords + 2);
  bits.hints.reserve(size / kHintStep + 2);
  uint64_t before = 0;
  for (size_t first = 0; first < bits.words.size(); first += kGroupWords) {
    bits.before.push_back(before);
    for (size_t word = first; word < first + kGroupWords; ++word)
      before += static_cast<uint64_t>(std::popcount(bits.words[word]));
    while (bits.hints.size() * kHintStep < before) bits.hints.push_back(bits.before.size() - 1);
  }
  bits.hints.push_back(bits.before.empty() ? 0 : bits.before.size() - 1);
  bits.before.push_back(before);
  return bits;
}

uint64_t id_at(const Selection::Runs& runs, uint64_t place) noexcept {
  const auto run = static_cast<size_t>(std::upper_bound(runs.ends.begin(), runs.ends.end(), place) - runs.ends.begin());
  return runs.first_ids[run] + place - (run == 0 ? 0 : runs.ends[run - 1]);
}

uint64_t id_at(const Selection::List& list, uint64_t place) noexcept { return list.ids[place]; }

// The group of words that has the id of a place.
[[gnu::always_inline]] inline uint64_t group_at(const Selection::Bits& bits, uint64_t place) noexcept {
  const uint64_t low = bits.hints[place / kHintStep];
  const uint64_t high = bits.hints[place / kHintStep + 1];
  if (high - low <= 4) {
    uint64_t group = low;
    for (uint64_t next = low + 1; next <= high; ++next) group += bits.before[next] <= place ? 1 : 0;
    return group;
  }
  const uint64_t* before = bits.before.data();
  return static_cast<uint64_t>(std::upper_bound(before + low, before + high + 1, place) - before) - 1;
}

[[gnu::always_inline]] inline uint64_t id_in_group(const Selection::Bits& bits, uint64_t group,
                                                   uint64_t place) noexcept {
  const uint64_t* words = bits.words.data() + group * kGroupWords;
  const uint64_t n = place - bits.before[group];
  uint64_t word = 0;   // of the group, the one with the id
  uint64_t below = 0;  // ids of the words before it
  uint64_t so_far = 0;
  for (uint64_t i = 0; i < kGroupWords; ++i) {
    so_far += static_cast<uint64_t>(std::popcount(words[i]));
    const bool passed = so_far <= n;
    word += passed ? 1 : 0;
    below = passed ? so_far : below;
  }
  return (group * kGroupWords + word) * kWordBits + nth_bit(words[word], n - below);
}

uint64_t id_at(const Selection::Bits& bits, uint64_t place) noexcept {
  return id_in_group(bits, group_at(bits, place), place);
}

template <typename Form>
void ids_form(const Form& form, std::span<const uint64_t> places, std::span<uint64_t> ids) noexcept {
  for (size_t i = 0; i < places.size(); ++i) ids[i] = id_at(form, places[i]);
}

// Far apart, each place misses the cache three times; so what some of them need next is asked for while others go on.
[[gnu::always_inline]] inline void ids_in_bits(const Selection::Bits& bits, std::span<const uint64_t> places,
                                               std::span<uint64_t> ids) noexcept {
  constexpr size_t kAtOnce = 32;
  std::array<uint64_t, kAtOnce> groups;
  for (size_t first = 0; first < places.size(); first += kAtOnce) {
    const std::span<const uint64_t> part = places.subspan(first, std::min(kAtOnce, places.size() - first));
    for (const uint64_t place : part) __builtin_prefetch(&bits.hints[place / kHintStep]);
    for (const uint64_t place : part) {
      const uint64_t low = bits.hints[place / kHintStep];
      __builtin_prefetch(&bits.before[low + (bits.hints[place / kHintStep + 1] - low) / 2]);
    }
    for (size_t i = 0; i < part.size(); ++i) {
      groups[i] = group_at(bits, part[i]);
      __builtin_prefetch(&bits.words[groups[i] * kGroupWords]);
    }
    for (size_t i = 0; i < part.size(); ++i) ids[first + i] = id_in_group(bits, groups[i], part[i]);
  }
}

#if defined(__x86_64__)
// The same with the instruction that counts bits, which the oldest machines lack.
[[gnu::target("popcnt")]] void ids_with_popcnt(const Selection::Bits& bits, std::span<const uint64_t> places,
                                               std::span<uint64_t> ids) noexcept {
  ids_in_bits(bits, places, ids);
}
#endif

void ids_form(const Selection::Bits& bits, std::span<const uint64_t> places, std::span<uint64_t> ids) noexcept {
#if defined(__x86_64__)
  static const bool has_popcnt = __builtin_cpu_supports("popcnt");
  if (has_popcnt) return ids_with_popcnt(bits, places, ids);
#endif
  ids_in_bits(bits, places, ids);
}

void fill_form(const Selection::Runs& runs, uint64_t first, std::span<uint64_t> ids) noexcept {
  auto run = static_cast<size_t>(std::upper_bound(runs.ends.begin(), runs.ends.end(), first) - runs.ends.begin());
  for (size_t i = 0; i < ids.size(); ++run) {
    const uint64_t begin = run == 0 ? 0 : runs.ends[run - 1];
    const uint64_t end = std::min<uint64_t>(runs.ends[run], first + ids.size());
    for (uint64_t place = first + i; place < end; ++place, ++i) ids[i] = runs.first_ids[run] + place - begin;
  }
}

void fill_form(const Selection::List& list, uint64_t first, std::span<uint64_t> ids) noexcept {
  std::copy_n(list.ids.begin() + static_cast<ptrdiff_t>(first), ids.size(), ids.begin());
}

void fill_form(const Selection::Bits& bits, uint64_t first, std::span<uint64_t> ids) noexcept {
  if (ids.empty()) return;
  const uint64_t begin = id_at(bits, first);
  size_t word = begin / kWordBits;
  uint64_t left = bits.words[word] & (~uint64_t{0} << (begin % kWordBits));
  for (size_t i = 0; i < ids.size();) {
    for (; left != 0 && i < ids.size(); left &= left - 1) {
      ids[i++] = word * kWordBits + static_cast<uint64_t>(std::countr_zero(left));
    }
    if (i < ids.size()) left = bits.words[++word];
  }
}

uint64_t rank_form(const Selection::Runs& runs, uint64_t bound) noexcept {
  const auto run = static_cast<size_t>(std::lower_bound(runs.first_ids.begin(), runs.first_ids.end(), bound) -
                                       runs.first_ids.begin());
  if (run == 0) return 0;
  const uint64_t begin = run == 1 ? 0 : runs.ends[run - 2];
  return std::min(runs.ends[run - 1], begin + (bound - runs.first_ids[run - 1]));
}

uint64_t rank_form(const Selection::List& list, uint64_t bound) noexcept {
  return static_cast<uint64_t>(std::lower_bound(list.ids.begin(), list.ids.end(), bound) - list.ids.begin());
}

uint64_t rank_form(const Selection::Bits& bits, uint64_t bound) noexcept {
  const size_t end = bound / kWordBits;
  uint64_t count = bits.before[bound / kGroupBits];
  for (size_t word = bound / kGroupBits * kGroupWords; word < end; ++word) {
    count += static_cast<uint64_t>(std::popcount(bits.words[word]));
  }
  const uint64_t odd = bound % kWordBits;
  if (odd != 0) count += static_cast<uint64_t>(std::popcount(bits.words[end] & ((uint64_t{1} << odd) - 1)));
  return count;
}

size_t bytes_of(const std::vector<uint64_t>& values) { return values.capacity() * sizeof(uint64_t); }

void set_bit(std::vector<uint64_t>& words, uint64_t id) { words[id / kWordBits] |= uint64_t{1} << (id % kWordBits); }

// Calls take(ids) for the ids at places [begin, end) in pieces of at most kChunk.
template <typename Take>
void for_each_chunk(const Selection& selection, uint64_t begin, uint64_t end, Take&& take) {
  std::array<uint64_t, kChunk> ids;
  for (uint64_t first = begin; first < end; first += kChunk) {
    const std::span<uint64_t> part(ids.data(), std::min<uint64_t>(kChunk, end - first));
    selection.fill(first, part);
    take(std::span<const uint64_t>(part));
  }
}

}  // namespace

Selection Selection::of_ids(std::span<const uint64_t> ids, uint64_t universe) {
  check_universe(universe);
  uint64_t runs = ids.empty() ? 0 : 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= universe) {
      invalid("id " + std::to_string(ids[i]) + " is outside a data set of " + std::to_string(universe) + " samples");
    }
    if (i == 0) continue;
    if (ids[i] <= ids[i - 1])
      invalid("ids must ascend without repeats; " + std::to_string(ids[i]) + " comes after " +
              std::to_string(ids[i - 1]));
    runs += ids[i] != ids[i - 1] + 1 ? 1 : 0;
  }
  switch (best_form(ids.size(), runs, universe)) {
    case Best::kRuns: {
      Runs form;
      form.first_ids.reserve(runs);
      form.ends.reserve(runs);
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i > 0 && ids[i] != ids[i - 1] + 1) form.ends.push_back(i);
        if (i == 0 || ids[i] != ids[i - 1] + 1) form.first_ids.push_back(ids[i]);
      }
      if (!ids.empty()) form.ends.push_back(ids.size());
      return {ids.size(), universe, std::move(form)};
    }
    case Best::kList: return {ids.size(), universe, List{{ids.begin(), ids.end()}}};
    case Best::kBits: break;
  }
  std::vector<uint64_t> words(words_of(universe));
  for (const uint64_t id : ids) set_bit(words, id);
  return {ids.size(), universe, make_bits(std::move(words), ids.size())};
}

Selection Selection::of_runs(std::span<const Run> runs, uint64_t universe) {
  check_universe(universe);
  Runs form;
  uint64_t size = 0;
  uint64_t end = 0;
  for (const Run& run : runs) {
    if (run.first >= run.end || run.end > universe || (size > 0 && run.first < end)) {
      invalid("runs must ascend below " + std::to_string(universe) + " without overlap; [" + std::to_string(run.first) +
              ", " + std::to_string(run.end) + ") does not");
    }
    const bool joined = size > 0 && run.first == end;
    size += run.end - run.first;
    end = run.end;
    if (joined) {
      form.ends.back() = size;
    } else {
      form.first_ids.push_back(run.first);
      form.ends.push_back(size);
    }
  }
  Selection selection(size, universe, std::move(form));
  const Runs& kept = std::get<Runs>(selection.form_);
  switch (best_form(size, kept.ends.size(), universe)) {
    case Best::kRuns: return selection;
    case Best::kList: {
      List list{std::vector<uint64_t>(size)};
      selection.fill(0, list.ids);
      return {size, universe, std::move(list)};
    }
    case Best::kBits: break;
  }
  std::vector<uint64_t> words(words_of(universe));
  for_each_chunk(selection, 0, size, [&](std::span<const uint64_t> ids) {
    for (const uint64_t id : ids) set_bit(words, id);
  });
  return {size, universe, make_bits(std::move(words), size)};
}

Selection Selection::of_words(std::vector<uint64_t> words, uint64_t universe) {
  check_universe(universe);
  if (words.size() != words_of(universe)) {
    invalid(std::to_string(universe) + " ids take " + std::to_string(words_of(universe)) + " words of bits, got " +
            std::to_string(words.size()));
  }
  const uint64_t odd = universe % kWordBits;
  if (odd != 0 && words.back() >> odd != 0) {
    invalid("there are bits beyond the " + std::to_string(universe) + " ids");
  }
  uint64_t size = 0;
  uint64_t runs = 0;
  uint64_t carry = 0;  // the last bit of the word before
  for (const uint64_t word : words) {
    size += static_cast<uint64_t>(std::popcount(word));
    runs += static_cast<uint64_t>(std::popcount(word & ~((word << 1) | carry)));
    carry = word >> (kWordBits - 1);
  }
  const Best best = best_form(size, runs, universe);
  Selection bits(size, universe, make_bits(std::move(words), size));
  if (best == Best::kBits) return bits;
  if (best == Best::kList) {
    List list{std::vector<uint64_t>(size)};
    bits.fill(0, list.ids);
    return {size, universe, std::move(list)};
  }
  Runs form;
  form.first_ids.reserve(runs);
  form.ends.reserve(runs);
  uint64_t place = 0;
  uint64_t next = universe;  // the id that would continue the run
  for_each_chunk(bits, 0, size, [&](std::span<const uint64_t> ids) {
    for (const uint64_t id : ids) {
      if (place == 0 || id != next) {
        if (place > 0) form.ends.push_back(place);
        form.first_ids.push_back(id);
      }
      next = id + 1;
      ++place;
    }
  });
  if (place > 0) form.ends.push_back(place);
  return {size, universe, std::move(form)};
}

std::vector<Selection> Selection::split(const Permutation& permutation, std::span<const uint64_t> cuts) {
  const uint64_t universe = permutation.size();
  if (cuts.empty() || !std::is_sorted(cuts.begin(), cuts.end()) || cuts.back() > universe) {
    invalid("cuts must ascend from 0 to " + std::to_string(universe) + " at most");
  }
  std::vector<std::vector<uint64_t>> words(cuts.size() - 1, std::vector<uint64_t>(words_of(universe)));
  std::array<uint64_t, kChunk> values;
  for (uint64_t first = 0; first < universe; first += kChunk) {
    const std::span<uint64_t> chunk(values.data(), std::min<uint64_t>(kChunk, universe - first));
    order::fill(permutation, first, chunk);
    for (size_t part = 0; part < words.size(); ++part) {
      const uint64_t begin = cuts[part];
      const uint64_t length = cuts[part + 1] - begin;
      uint64_t* out = words[part].data() + first / kWordBits;
      for (size_t i = 0; i < chunk.size(); i += kWordBits, ++out) {
        const size_t end = std::min<size_t>(kWordBits, chunk.size() - i);
        uint64_t word = 0;
        for (size_t bit = 0; bit < end; ++bit) word |= uint64_t{chunk[i + bit] - begin < length} << bit;
        *out = word;
      }
    }
  }
  std::vector<Selection> parts;
  parts.reserve(words.size());
  for (std::vector<uint64_t>& part : words) parts.push_back(of_words(std::move(part), universe));
  return parts;
}

size_t Selection::memory() const noexcept {
  return sizeof(*this) +
         std::visit(Overloaded{[](const Runs& runs) { return bytes_of(runs.first_ids) + bytes_of(runs.ends); },
                               [](const List& list) { return bytes_of(list.ids); },
                               [](const Bits& bits) {
                                 return bytes_of(bits.words) + bytes_of(bits.before) + bytes_of(bits.hints);
                               }},
                    form_);
}

void Selection::ids(std::span<const uint64_t> places, std::span<uint64_t> ids) const noexcept {
  std::visit([&](const auto& form) { ids_form(form, places, ids); }, form_);
}

void Selection::fill(uint64_t first, std::span<uint64_t> ids) const noexcept {
  std::visit([&](const auto& form) { fill_form(form, first, ids); }, form_);
}

uint64_t Selection::rank(uint64_t bound) const noexcept {
  return std::visit([&](const auto& form) { return rank_form(form, bound); }, form_);
}

Hash128 Selection::digest() const {
  static_assert(std::endian::native == std::endian::little);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for_each_chunk(*this, 0, size_,
                 [&](std::span<const uint64_t> ids) { XXH3_128bits_update(&state, ids.data(), ids.size_bytes()); });
  return canonical(XXH3_128bits_digest(&state));
}

Selection Selection::clip(uint64_t begin, uint64_t end) const {
  if (begin > end || end > universe_) {
    invalid("[" + std::to_string(begin) + ", " + std::to_string(end) + ") is no part of " + std::to_string(universe_) +
            " samples");
  }
  const uint64_t first = rank(begin);
  const uint64_t last = rank(end);
  if (last - first <= (end - begin) / 64) {
    std::vector<uint64_t> kept(last - first);
    fill(first, kept);
    for (uint64_t& id : kept) id -= begin;
    return of_ids(kept, end - begin);
  }
  std::vector<uint64_t> words(words_of(end - begin));
  for_each_chunk(*this, first, last, [&](std::span<const uint64_t> ids) {
    for (const uint64_t id : ids) set_bit(words, id - begin);
  });
  return of_words(std::move(words), end - begin);
}

Selection Selection::compose(const Selection& inner) const {
  if (inner.universe() != size_) {
    invalid("a selection from " + std::to_string(inner.universe()) + " samples is not one from " +
            std::to_string(size_));
  }
  if (inner.size() <= universe_ / 64) {
    std::vector<uint64_t> selected(inner.size());
    inner.fill(0, selected);
    ids(selected, selected);
    return of_ids(selected, universe_);
  }
  std::vector<uint64_t> words(words_of(universe_));
  for_each_chunk(inner, 0, inner.size(), [&](std::span<const uint64_t> places) {
    std::array<uint64_t, kChunk> selected;
    ids(places, {selected.data(), places.size()});
    for (size_t i = 0; i < places.size(); ++i) set_bit(words, selected[i]);
  });
  return of_words(std::move(words), universe_);
}

SelectionBuilder::SelectionBuilder(uint64_t universe) : universe_(universe) {
  check_universe(universe);
  words_.resize(words_of(universe));
}

void SelectionBuilder::add(std::span<const uint64_t> ids) {
  for (const uint64_t id : ids) {
    if (id >= universe_) {
      invalid("id " + std::to_string(id) + " is outside a data set of " + std::to_string(universe_) + " samples");
    }
    uint64_t& word = words_[id / kWordBits];
    const uint64_t bit = uint64_t{1} << (id % kWordBits);
    if ((word & bit) != 0) invalid("id " + std::to_string(id) + " comes twice");
    word |= bit;
  }
}

Selection SelectionBuilder::finish() && {
  return Selection::of_words(std::exchange(words_, {}), std::exchange(universe_, 0));
}

}  // namespace fastshard::order
