// Three ways to the same result. A piece that is a reachable token is one look-up (most words). A short piece scans for
// the best pair again after each merge. A long one keeps its pairs in a heap over a linked list, so that two megabytes
// of one letter cost n log n.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/check.h"

namespace lily {

namespace {

constexpr std::size_t kShortPiece = 48;  // bytes; the quadratic scan is the faster way up to about here

std::uint64_t pair_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::size_t hash(std::uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(pair ^ pair >> 29);
}

}  // namespace

Bpe::Bpe(std::vector<std::string_view> tokens, const std::vector<Merge>& merges)
    : index_(tokens), slots_(std::bit_ceil(2 * merges.size() + 1)), reachable_(tokens.size()) {
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const auto id = index_.find(std::string_view(&byte, 1));
    LILY_CHECK(id.has_value());
    byte_tokens_[static_cast<std::size_t>(b)] = *id;
  }
  std::uint32_t rank = 0;
  for (const Merge& merge : merges) add_merge(merge, rank++);
  std::vector<TokenId> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    longest_token_bytes_ = std::max(longest_token_bytes_, tokens[id].size());
    ids.clear();
    if (tokens[id].size() <= kShortPiece) {
      merge_short(tokens[id], ids);
    } else {
      merge_long(tokens[id], ids);
    }
    reachable_[id] = ids.size() == 1 && ids.front() == static_cast<TokenId>(id);
  }
}

// A pair given twice keeps its last rank, as in a map that is filled in order.
void Bpe::add_merge(const Merge& merge, std::uint32_t rank) {
  const std::uint64_t pair = pair_of(merge.left, merge.right);
  std::size_t i = hash(pair) & (slots_.size() - 1);
  while (slots_[i].pair != kNoPair && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {pair, rank, merge.merged};
}

const Bpe::Slot& Bpe::find_merge(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t i = hash(pair) & (slots_.size() - 1);
  while (slots_[i].pair != kNoPair && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
  return slots_[i];
}

void Bpe::encode_piece(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.size() == 1) {
    out.push_back(byte_tokens_[static_cast<unsigned char>(piece.front())]);
    return;
  }
  if (piece.size() <= longest_token_bytes_) {
    if (const auto id = index_.find(piece); id && is_reachable(*id)) {
      out.push_back(*id);
      return;
    }
  }
  if (piece.size() <= kShortPiece) {
    merge_short(piece, out);
  } else {
    merge_long(piece, out);
  }
}

void Bpe::merge_short(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortPiece> ids;
  std::array<const Slot*, kShortPiece> merges;  // merges[i] joins ids[i] and ids[i + 1]
  std::size_t n = piece.size();
  for (std::size_t i = 0; i < n; ++i) ids[i] = byte_tokens_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < n; ++i) merges[i] = &find_merge(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) {
      if (merges[i]->rank < merges[best]->rank) best = i;
    }
    if (merges[best]->rank == kNoMerge) break;
    ids[best] = merges[best]->merged;
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(best) + 2, ids.begin() + static_cast<std::ptrdiff_t>(n),
              ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + static_cast<std::ptrdiff_t>(best) + 1,
              merges.begin() + static_cast<std::ptrdiff_t>(n) - 1, merges.begin() + static_cast<std::ptrdiff_t>(best));
    --n;
    if (best > 0) merges[best - 1] = &find_merge(ids[best - 1], ids[best]);
    if (best + 1 < n) merges[best] = &find_merge(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
}

namespace {

struct Symbol {
  TokenId id;           // -1: swallowed by the symbol before it
  std::int32_t before;  // neighbours still alive; -1: none
  std::int32_t after;
};

struct Candidate {
  std::uint32_t rank;
  std::int32_t position;  // of the left symbol
  TokenId merged;

  // For a heap whose top is the lowest rank, leftmost on equal rank.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

void Bpe::merge_long(std::string_view piece, std::vector<TokenId>& out) const {
  LILY_CHECK(piece.size() < INT32_MAX);
  const auto n = static_cast<std::int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (std::int32_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    symbols[at] = {byte_tokens_[static_cast<unsigned char>(piece[at])], i - 1, i + 1 < n ? i + 1 : -1};
  }
  std::vector<Candidate> heap;
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto push_pair = [&](std::int32_t left, bool ordered) {
    if (left < 0 || symbol(left).after < 0) return;
    const Slot& slot = find_merge(symbol(left).id, symbol(symbol(left).after).id);
    if (slot.rank == kNoMerge) return;
    heap.push_back({slot.rank, left, slot.merged});
    if (ordered) std::push_heap(heap.begin(), heap.end());
  };
  for (std::int32_t i = 0; i < n; ++i) push_pair(i, false);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbol(top.position);
    if (left.id < 0 || left.after < 0) continue;
    Symbol& right = symbol(left.after);
    if (find_merge(left.id, right.id).rank != top.rank) continue;  // one of the two has grown since
    left.id = top.merged;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = top.position;
    push_pair(left.before, true);
    push_pair(top.position, true);
  }
  for (std::int32_t i = 0; i >= 0; i = symbol(i).after) out.push_back(symbol(i).id);
}

}  // namespace lily
