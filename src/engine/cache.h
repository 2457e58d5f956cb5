// Prefix cache: snapshots of sequences, found again by the tokens that led to them. Two of them exist: whole states
// with LRU as in Lily (cache_states.h) and the trie (cache_trie.h). Used from the engine's thread alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"

namespace lily {

// Why a snapshot was taken; says how likely it is to be asked for again.
enum class SnapshotKind : std::uint8_t {
  Boundary,  // a message ends here, or two conversations part here
  Interval,  // inside a long prompt: for edits and for a prefill that was cancelled
  End,       // after generation
};

struct CacheHit {
  std::shared_ptr<const Snapshot> snapshot;  // null: nothing usable
  std::int64_t length = 0;                   // tokens the snapshot has seen, a prefix of the prompt
  std::int64_t shared = 0;                   // longest prefix of the prompt on any cached path, with a snapshot or not
  bool diverged = false;                     // the path goes on after `shared` with another token than the prompt
};

struct CacheCounters {
  std::size_t entries = 0;
  std::size_t used_bytes = 0;  // of memory, pages that snapshots share counted once
  std::uint64_t evictions = 0;
  std::size_t disk_entries = 0;
  std::size_t disk_bytes = 0;
};

// Tokens that both begin with.
inline std::int64_t shared_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

class PrefixCache {
 public:
  virtual ~PrefixCache() = default;

  // The longest snapshot of at most `max_length` tokens whose tokens begin `prompt`, token by token. Marks it used.
  virtual CacheHit find(std::span<const TokenId> prompt, std::int64_t max_length) = 0;
  // Length of the longest snapshot that find() would return; changes nothing.
  virtual std::int64_t longest(std::span<const TokenId> prompt, std::int64_t max_length) const = 0;
  // Whether a snapshot of exactly these tokens is held in memory; marks it used if so.
  virtual bool touch(std::span<const TokenId> tokens) = 0;
  // Keeps a snapshot of exactly these tokens (snapshot->length() of them). `key` may protect others from eviction.
  virtual void insert(std::span<const TokenId> tokens, std::shared_ptr<const Snapshot> snapshot, SnapshotKind kind,
                      std::string_view key) = 0;
  // Drops every snapshot whose tokens begin `tokens`: one of them is suspect.
  virtual void forget(std::span<const TokenId> tokens) = 0;
  // Memory is short: drops the less useful half. False if there was nothing to drop.
  virtual bool shrink() = 0;
  // The engine stops: writes what is worth keeping, if the cache persists.
  virtual void save() {}
  virtual CacheCounters counters() const = 0;
};

}  // namespace lily
