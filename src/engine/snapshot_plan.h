// At which prompt lengths a prefill stops to take a snapshot. A cut costs a pass over the weights and a copy of the
// recurrent state, so the plan keeps those positions that later prompts are likely to share and skips near twins.
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
};

// Fewer tokens than this between two snapshots of old history are not worth a cut.
inline constexpr std::int64_t kMinSnapshotGap = 64;

// For the trie: ascending. The first boundary (system and tools) and the last two (where the next turns will come
// back to) always, others and the branch if they are kMinSnapshotGap apart; multiples of `interval` where the plan
// would else leave a longer gap. Without boundaries, the last position that a repetition can use: prompt - 1.
std::vector<PlannedSnapshot> plan_trie_snapshots(const SnapshotPlanInput& input);

// For whole states: the last boundary alone, or prompt - 1 without boundaries.
std::vector<PlannedSnapshot> plan_state_snapshots(const SnapshotPlanInput& input);

}  // namespace lily
