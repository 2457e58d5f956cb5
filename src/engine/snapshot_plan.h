// At which prompt lengths a prefill leaves a snapshot: where later prompts are likely to part from this one. Each
// costs a copy of the recurrent state, taken in passing: 66 MB of the 35B shape.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache.h"

namespace lily {

struct PlannedSnapshot {
  std::int64_t length = 0;
  SnapshotKind kind = SnapshotKind::Boundary;
  bool operator==(const PlannedSnapshot&) const = default;
};

struct SnapshotPlanInput {
  std::int64_t start = 0;                      // tokens that came from the cache
  std::int64_t prompt = 0;                     // prompt length; every position lies in (start, prompt)
  std::span<const std::int64_t> boundaries{};  // as in Request
  std::int64_t branch = 0;                     // where the prompt leaves the nearest cached path; 0: nowhere
  std::int64_t interval = 0;                   // 0: none
  // As many boundaries as the cache can hold; of more, the first and the last are taken. 0: all.
  std::int64_t most_boundaries = 0;
};

// Where no message ends, a snapshot that saves fewer tokens than this is not worth its memory.
inline constexpr std::int64_t kLeastTokensToSnapshot = 64;

// For the trie: ascending. Every boundary; the branch if it is kLeastTokensToSnapshot behind what is there before it;
// multiples of `interval` where the plan would else leave a longer gap. Without boundaries, the last position that a
// repetition can use: prompt - 1.
std::vector<PlannedSnapshot> plan_trie_snapshots(const SnapshotPlanInput& input);

// For whole states: the last boundary alone, or prompt - 1 without boundaries.
std::vector<PlannedSnapshot> plan_state_snapshots(const SnapshotPlanInput& input);

}  // namespace lily
