// Lily's prefix cache: a few whole states, least recently used goes first. A state serves a prompt only if all of its
// tokens begin the prompt. The key never skips that check; it keeps one conversation from pushing out the others: a
// new state with a key replaces the oldest of the same key once that key holds two.
#pragma once

#include <list>
#include <vector>

#include "engine/cache.h"
#include "engine/cache_pages.h"

namespace lily {

class StatesCache : public PrefixCache {
 public:
  explicit StatesCache(int n_states);

  CacheHit find(std::span<const TokenId> prompt, std::int64_t max_length) override;
  std::int64_t longest(std::span<const TokenId> prompt, std::int64_t max_length) const override;
  bool touch(std::span<const TokenId> tokens) override;
  void insert(std::span<const TokenId> tokens, std::shared_ptr<const Snapshot> snapshot, SnapshotKind kind,
              std::string_view key) override;
  void forget(std::span<const TokenId> tokens) override;
  bool shrink() override;
  CacheCounters counters() const override;

 private:
  struct State {
    PageLedger::Owner owner;
    std::vector<TokenId> tokens;
    std::shared_ptr<const Snapshot> snapshot;
    std::string key;
  };
  using States = std::list<State>;

  States::const_iterator best(std::span<const TokenId> prompt, std::int64_t max_length) const;
  States::iterator drop(States::iterator state);
  void make_room(std::string_view key);

  std::size_t n_states_;
  States states_;  // most recently used first
  PageLedger pages_;
  PageLedger::Owner next_owner_ = 1;
  std::uint64_t evictions_ = 0;
};

}  // namespace lily
