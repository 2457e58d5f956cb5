#include "engine/cache_states.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lily {

StatesCache::StatesCache(int n_states) : n_states_(static_cast<std::size_t>(n_states)) {
  LILY_CHECK(n_states > 0);
}

StatesCache::States::const_iterator StatesCache::best(std::span<const TokenId> prompt, std::int64_t max_length) const {
  auto best = states_.end();
  for (auto it = states_.begin(); it != states_.end(); ++it) {
    const auto length = std::ssize(it->tokens);
    if (length > max_length || (best != states_.end() && length <= std::ssize(best->tokens))) continue;
    if (shared_prefix(it->tokens, prompt) == length) best = it;
  }
  return best;
}

CacheHit StatesCache::find(std::span<const TokenId> prompt, std::int64_t max_length) {
  CacheHit hit;
  for (const State& state : states_) {
    const std::int64_t shared = shared_prefix(state.tokens, prompt);
    if (shared < hit.shared) continue;
    if (shared > hit.shared) hit.diverged = false;
    hit.shared = shared;
    hit.diverged |= shared < std::ssize(state.tokens) && shared < std::ssize(prompt);
  }
  const auto found = best(prompt, max_length);
  if (found == states_.end()) return hit;
  hit.snapshot = found->snapshot;
  hit.length = std::ssize(found->tokens);
  states_.splice(states_.begin(), states_, found);
  return hit;
}

std::int64_t StatesCache::longest(std::span<const TokenId> prompt, std::int64_t max_length) const {
  const auto found = best(prompt, max_length);
  return found == states_.end() ? 0 : std::ssize(found->tokens);
}

bool StatesCache::touch(std::span<const TokenId> tokens) {
  const auto same = [&](const State& state) { return std::ranges::equal(state.tokens, tokens); };
  const auto found = std::ranges::find_if(states_, same);
  if (found == states_.end()) return false;
  states_.splice(states_.begin(), states_, found);
  return true;
}

void StatesCache::insert(std::span<const TokenId> tokens, std::shared_ptr<const Snapshot> snapshot, SnapshotKind kind,
                         std::string_view key) {
  LILY_CHECK(snapshot->length() == std::ssize(tokens));
  // One state alone is worth most where the next turn begins: at the end of the user's turn.
  if (n_states_ == 1 && kind == SnapshotKind::End && !states_.empty()) return;
  if (touch(tokens)) return;
  if (states_.size() == n_states_) make_room(key);
  const PageLedger::Owner owner = next_owner_++;
  pages_.add(owner, *snapshot);
  states_.push_front({.owner = owner,
                      .tokens = {tokens.begin(), tokens.end()},
                      .snapshot = std::move(snapshot),
                      .key = std::string(key)});
}

void StatesCache::make_room(std::string_view key) {
  auto victim = std::prev(states_.end());
  const auto has_key = [&](const State& state) { return state.key == key; };
  if (!key.empty() && std::ranges::count_if(states_, has_key) >= 2) {
    victim = std::prev(std::find_if(states_.rbegin(), states_.rend(), has_key).base());
  }
  drop(victim);
  ++evictions_;
}

StatesCache::States::iterator StatesCache::drop(States::iterator state) {
  pages_.remove(state->owner, *state->snapshot);
  return states_.erase(state);
}

void StatesCache::forget(std::span<const TokenId> tokens) {
  for (auto it = states_.begin(); it != states_.end();) {
    const bool on_path = shared_prefix(it->tokens, tokens) == std::ssize(it->tokens);
    it = on_path ? drop(it) : std::next(it);
  }
}

bool StatesCache::shrink() {
  if (states_.empty()) return false;
  const std::size_t keep = states_.size() / 2;
  while (states_.size() > keep) {
    drop(std::prev(states_.end()));
    ++evictions_;
  }
  return true;
}

CacheCounters StatesCache::counters() const {
  return {.entries = states_.size(), .used_bytes = pages_.total_bytes(), .evictions = evictions_};
}

}  // namespace lily
