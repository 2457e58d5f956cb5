#include "engine/snapshot_plan.h"

#include <algorithm>

namespace lily {
namespace {

// The request's boundaries that this prefill passes, ascending and without repetition.
std::vector<std::int64_t> passed_boundaries(const SnapshotPlanInput& input) {
  std::vector<std::int64_t> passed;
  for (const std::int64_t boundary : input.boundaries) {
    if (boundary > 0 && boundary < input.prompt) passed.push_back(boundary);
  }
  if (passed.empty()) passed.push_back(input.prompt - 1);
  std::ranges::sort(passed);
  const auto twins = std::ranges::unique(passed);
  passed.erase(twins.begin(), twins.end());
  std::erase_if(passed, [&](std::int64_t boundary) { return boundary <= input.start; });
  return passed;
}

// The first (system and tools) and the last: those that the cache would keep of a history too long for it.
void limit(std::int64_t most, std::vector<std::int64_t>& boundaries) {
  const std::int64_t excess = most > 0 ? std::ssize(boundaries) - most : 0;
  if (excess <= 0) return;
  const auto first = boundaries.begin() + (most > 1 ? 1 : 0);
  boundaries.erase(first, first + excess);
}

std::vector<std::int64_t> boundaries_and_branch(const SnapshotPlanInput& input) {
  std::vector<std::int64_t> kept = passed_boundaries(input);
  limit(input.most_boundaries, kept);
  const auto next = std::ranges::lower_bound(kept, input.branch);
  const std::int64_t before = next == kept.begin() ? input.start : *std::prev(next);
  if (input.branch < input.prompt && input.branch - before >= kLeastTokensToSnapshot &&
      (next == kept.end() || *next != input.branch)) {
    kept.insert(next, input.branch);
  }
  return kept;
}

// Multiples of interval in (from, to) that leave a quarter of an interval to both sides.
void fill_gap(std::int64_t from, std::int64_t to, std::int64_t interval, std::vector<PlannedSnapshot>& plan) {
  const std::int64_t margin = interval / 4;
  for (std::int64_t at = (from / interval + 1) * interval; at + margin < to; at += interval) {
    if (at - from >= margin) plan.push_back({.length = at, .kind = SnapshotKind::Interval});
  }
}

}  // namespace

std::vector<PlannedSnapshot> plan_trie_snapshots(const SnapshotPlanInput& input) {
  std::vector<PlannedSnapshot> plan;
  std::int64_t previous = input.start;
  for (const std::int64_t boundary : boundaries_and_branch(input)) {
    if (input.interval > 0) fill_gap(previous, boundary, input.interval, plan);
    plan.push_back({.length = boundary, .kind = SnapshotKind::Boundary});
    previous = boundary;
  }
  if (input.interval > 0) fill_gap(previous, input.prompt, input.interval, plan);
  return plan;
}

std::vector<PlannedSnapshot> plan_state_snapshots(const SnapshotPlanInput& input) {
  const std::vector<std::int64_t> boundaries = passed_boundaries(input);
  if (boundaries.empty()) return {};
  return {{.length = boundaries.back(), .kind = SnapshotKind::Boundary}};
}

}  // namespace lily
