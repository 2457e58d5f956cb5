// The two prefix caches by themselves: what they find, what they keep, what they count.
#include "engine/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/cache_states.h"
#include "engine/cache_trie.h"
#include "engine/snapshot_plan.h"
#include "support/engine_support.h"

namespace lily {
namespace {

using fake::kPageBytes;
using fake::kPageTokens;
using fake::kStateBytes;
using test::make_prompt;
using test::operator+;

using Tokens = std::vector<TokenId>;

// Snapshots as an engine makes them: of one sequence that goes on, so that they share pages.
class Maker {
 public:
  std::shared_ptr<const Snapshot> continue_to(const Tokens& tokens) {
    for (auto i = static_cast<std::size_t>(state_.length); i < tokens.size(); ++i) state_.append(tokens[i]);
    return std::make_shared<fake::FakeSnapshot>(state_);
  }
  const std::shared_ptr<fake::Memory> memory = std::make_shared<fake::Memory>();

 private:
  fake::State state_{memory};
};

std::shared_ptr<const Snapshot> snapshot_of(
    const Tokens& tokens, const std::shared_ptr<fake::Memory>& memory = std::make_shared<fake::Memory>()) {
  fake::State state(memory);
  for (const TokenId id : tokens) state.append(id);
  return std::make_shared<fake::FakeSnapshot>(state);
}

void insert(PrefixCache& cache, const Tokens& tokens, SnapshotKind kind = SnapshotKind::Boundary,
            std::string_view key = "") {
  cache.insert(tokens, snapshot_of(tokens), kind, key);
}

std::int64_t found(PrefixCache& cache, const Tokens& prompt) {
  return cache.find(prompt, std::ssize(prompt) - 1).length;
}

constexpr std::size_t kPlenty = std::size_t{1} << 30;

TEST(TrieCache, FindsTheLongestPrefix) {
  TrieCache cache(kPlenty);
  const Tokens base = make_prompt(1, 100);
  insert(cache, Tokens(base.begin(), base.begin() + 10));
  insert(cache, Tokens(base.begin(), base.begin() + 50));
  insert(cache, make_prompt(2, 30));
  EXPECT_EQ(found(cache, base), 50);
  EXPECT_EQ(found(cache, Tokens(base.begin(), base.begin() + 50)), 10);  // a token must be left to run
  EXPECT_EQ(cache.find(Tokens(base.begin(), base.begin() + 50), 50).length, 50);
  EXPECT_EQ(found(cache, Tokens(base.begin(), base.begin() + 10)), 0);
  EXPECT_EQ(found(cache, make_prompt(2, 31)), 30);
  EXPECT_EQ(found(cache, make_prompt(3, 31)), 0);
}

TEST(TrieCache, X16_SaysWhereAPromptParts) {
  TrieCache cache(kPlenty);
  EXPECT_FALSE(cache.find(make_prompt(1, 10), 9).diverged);
  insert(cache, make_prompt(1, 40));
  const Tokens edited = make_prompt(1, 25) + make_prompt(2, 30);
  const CacheHit hit = cache.find(edited, 54);
  EXPECT_TRUE(hit.diverged);
  EXPECT_EQ(hit.shared, 25);
  EXPECT_FALSE(cache.find(make_prompt(1, 60), 59).diverged);  // goes on where the path ends
  EXPECT_FALSE(cache.find(make_prompt(1, 20), 19).diverged);  // ends before the path does
}

TEST(TrieCache, EqualsAListOfAllSnapshotsUnderRandomUse) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    TrieCache cache(kPlenty);
    std::vector<Tokens> held;
    const auto random_tokens = [&] {  // a small alphabet, so that everything branches everywhere
      Tokens tokens(1 + random() % 12);
      for (TokenId& id : tokens) id = static_cast<TokenId>(random() % 2);
      return tokens;
    };
    for (int i = 0; i < 60; ++i) {
      const Tokens tokens = random_tokens();
      const auto begins = [&](const Tokens& other) {
        return other.size() <= tokens.size() && std::equal(other.begin(), other.end(), tokens.begin());
      };
      if (random() % 8 == 0) {
        cache.forget(tokens);
        std::erase_if(held, begins);
      } else if (random() % 2) {
        insert(cache, tokens);
        if (std::ranges::find(held, tokens) == held.end()) held.push_back(tokens);
      }
      std::int64_t longest = 0;
      for (const Tokens& other : held) {
        if (begins(other)) longest = std::max(longest, std::ssize(other));
      }
      ASSERT_EQ(cache.find(tokens, std::ssize(tokens)).length, longest);
      ASSERT_EQ(cache.counters().entries, held.size());
      std::int64_t shared = 0;
      for (const Tokens& other : held) {
        shared = std::max(shared, std::ranges::mismatch(other, tokens).in1 - other.begin());
      }
      ASSERT_EQ(cache.find(tokens, std::ssize(tokens)).shared, shared);
    }
  }
}

TEST(TrieCache, X14_CountsSharedPagesOnce) {
  Maker maker;
  TrieCache cache(kPlenty);
  const Tokens tokens = make_prompt(1, 64 * kPageTokens);
  for (std::int64_t pages = 8; pages <= 64; pages += 8) {
    const Tokens part(tokens.begin(), tokens.begin() + pages * kPageTokens);
    cache.insert(part, maker.continue_to(part), SnapshotKind::Interval, "");
    const auto used = cache.counters().used_bytes;
    EXPECT_EQ(used, static_cast<std::size_t>(pages / 8) * kStateBytes + static_cast<std::size_t>(pages) * kPageBytes +
                        part.size() * sizeof(TokenId));
    // Real use: the same, plus the sequence's own state.
    EXPECT_EQ(static_cast<std::size_t>(maker.memory->bytes()), used - part.size() * sizeof(TokenId) + kStateBytes);
  }
}

TEST(TrieCache, X14_StaysWithinTheBudgetAndKeepsTheNewest) {
  const auto memory = std::make_shared<fake::Memory>();
  constexpr std::size_t kBudget = 20 * (kStateBytes + 188 * (kPageBytes + kPageTokens * sizeof(TokenId)));
  TrieCache cache(kBudget);
  for (int i = 0; i < 500; ++i) {
    const Tokens tokens = make_prompt(i, 3000);
    cache.insert(tokens, snapshot_of(tokens, memory), SnapshotKind::End, "");
    ASSERT_LE(cache.counters().used_bytes, kBudget);
    ASSERT_LE(static_cast<std::size_t>(memory->bytes()), kBudget);
    ASSERT_EQ(cache.longest(tokens, 3000), 3000) << "the newest entry was evicted";
    ASSERT_EQ(cache.counters().entries, std::min<std::size_t>(20, static_cast<std::size_t>(i) + 1));
  }
  // Equal in worth, so the last twenty are the ones that are left.
  EXPECT_EQ(cache.longest(make_prompt(480, 3000), 3000), 3000);
  EXPECT_EQ(cache.longest(make_prompt(479, 3000), 3000), 0);
}

TEST(TrieCache, EntryLargerThanTheBudgetIsNotKept) {
  TrieCache cache(kStateBytes);
  insert(cache, make_prompt(1, 100));
  EXPECT_EQ(cache.counters().entries, 0u);
  EXPECT_EQ(cache.counters().used_bytes, 0u);
}

TEST(TrieCache, WhatIsUsedStaysWhileStrangersPass) {
  TrieCache cache(5 * (kStateBytes + 64 * (kPageBytes + kPageTokens * sizeof(TokenId))));
  const Tokens system = make_prompt(1000, 1000);
  insert(cache, system);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(found(cache, system + make_prompt(i, 5)), 1000);
    insert(cache, make_prompt(i, 1000), SnapshotKind::End);
  }
}

TEST(TrieCache, WhatSavedMuchOnceGoesInTheEndIfItNeverMatches) {
  TrieCache cache(10 * (kStateBytes + 64 * (kPageBytes + kPageTokens * sizeof(TokenId))));
  const Tokens precious = make_prompt(1000, 1000);
  insert(cache, precious);
  for (int i = 0; i < 20; ++i) found(cache, precious + make_prompt(i, 5));
  for (int i = 0; i < 1000; ++i) insert(cache, make_prompt(i, 1000), SnapshotKind::End);
  EXPECT_EQ(found(cache, precious + make_prompt(1, 5)), 0);
}

TEST(TrieCache, ShrinkEndsWithNothing) {
  TrieCache cache(kPlenty);
  for (int i = 0; i < 9; ++i) insert(cache, make_prompt(i, 100));
  EXPECT_TRUE(cache.shrink());
  EXPECT_LE(cache.counters().entries, 5u);
  while (cache.shrink()) {
  }
  EXPECT_EQ(cache.counters().entries, 0u);
  EXPECT_EQ(cache.counters().used_bytes, 0u);
}

TEST(StatesCache, ReusesOnlyAWholeStateThatBeginsThePrompt) {
  StatesCache cache(2);
  insert(cache, make_prompt(1, 50));
  EXPECT_EQ(found(cache, make_prompt(1, 51)), 50);
  EXPECT_EQ(found(cache, make_prompt(1, 50)), 0);  // strict
  EXPECT_EQ(found(cache, make_prompt(1, 49) + make_prompt(2, 20)), 0);
  const CacheHit parted = cache.find(make_prompt(1, 49) + make_prompt(2, 20), 68);
  EXPECT_TRUE(parted.diverged);
  EXPECT_EQ(parted.shared, 49);
}

TEST(StatesCache, X14_LeastRecentlyUsedGoesFirst) {
  StatesCache cache(2);
  insert(cache, make_prompt(1, 50));
  insert(cache, make_prompt(2, 50));
  EXPECT_EQ(found(cache, make_prompt(1, 60)), 50);
  insert(cache, make_prompt(3, 50));
  EXPECT_EQ(found(cache, make_prompt(2, 60)), 0);
  EXPECT_EQ(found(cache, make_prompt(1, 60)), 50);
  EXPECT_EQ(found(cache, make_prompt(3, 60)), 50);
  EXPECT_EQ(cache.counters().entries, 2u);
  EXPECT_EQ(cache.counters().evictions, 1u);
}

TEST(StatesCache, X13_KeyKeepsAConversationFromPushingOutOthers) {
  StatesCache cache(3);
  insert(cache, make_prompt(1, 50), SnapshotKind::Boundary, "a");
  for (int turn = 1; turn < 6; ++turn) {
    insert(cache, make_prompt(2, 50 * turn), SnapshotKind::Boundary, "b");
    insert(cache, make_prompt(2, 50 * turn + 20), SnapshotKind::End, "b");
  }
  EXPECT_EQ(found(cache, make_prompt(1, 60)), 50);
  EXPECT_EQ(found(cache, make_prompt(2, 400)), 270);
}

TEST(StatesCache, OneStateAloneIsTheEndOfTheUsersTurn) {
  StatesCache cache(1);
  insert(cache, make_prompt(1, 50), SnapshotKind::Boundary);
  insert(cache, make_prompt(1, 70), SnapshotKind::End);
  EXPECT_EQ(found(cache, make_prompt(1, 90)), 50);
  insert(cache, make_prompt(1, 80), SnapshotKind::Boundary);
  EXPECT_EQ(found(cache, make_prompt(1, 90)), 80);
}

TEST(PageLedger, KnowsWhatDroppingFrees) {
  Maker maker;
  const Tokens tokens = make_prompt(1, 4 * kPageTokens);
  const auto one = maker.continue_to(Tokens(tokens.begin(), tokens.begin() + 2 * kPageTokens));
  const auto two = maker.continue_to(tokens);
  PageLedger ledger;
  ledger.add(1, *one);
  EXPECT_EQ(ledger.exclusive_bytes(1), kStateBytes + 2 * kPageBytes);
  ledger.add(2, *two);
  EXPECT_EQ(ledger.exclusive_bytes(1), kStateBytes);
  EXPECT_EQ(ledger.exclusive_bytes(2), kStateBytes + 2 * kPageBytes);
  EXPECT_EQ(ledger.total_bytes(), 2 * kStateBytes + 4 * kPageBytes);
  ledger.remove(1, *one);
  EXPECT_EQ(ledger.exclusive_bytes(2), kStateBytes + 4 * kPageBytes);
  ledger.remove(2, *two);
  EXPECT_EQ(ledger.total_bytes(), 0u);
}

std::vector<std::int64_t> planned(SnapshotPlanInput input) {
  std::vector<std::int64_t> lengths;
  for (const PlannedSnapshot& planned : plan_trie_snapshots(input)) lengths.push_back(planned.length);
  return lengths;
}

TEST(SnapshotPlan, TakesBoundariesAndFillsLongGaps) {
  using testing::ElementsAre;
  const std::vector<std::int64_t> boundaries{100, 120, 140, 5000, 5010, 5020};
  EXPECT_THAT(planned({.prompt = 5025, .boundaries = boundaries}), ElementsAre(100, 120, 140, 5000, 5010, 5020));
  EXPECT_THAT(planned({.prompt = 5025, .boundaries = boundaries, .interval = 2000}),
              ElementsAre(100, 120, 140, 2000, 4000, 5000, 5010, 5020));
  EXPECT_THAT(planned({.start = 5010, .prompt = 5025, .boundaries = boundaries}), ElementsAre(5020));
  EXPECT_THAT(planned({.start = 120, .prompt = 5025, .boundaries = boundaries, .branch = 1000}),
              ElementsAre(140, 1000, 5000, 5010, 5020));
  EXPECT_THAT(planned({.start = 120, .prompt = 5025, .boundaries = boundaries, .branch = 150}),
              ElementsAre(140, 5000, 5010, 5020));
  EXPECT_THAT(planned({.start = 140, .prompt = 5025, .boundaries = boundaries, .branch = 5000}),
              ElementsAre(5000, 5010, 5020));
  EXPECT_THAT(planned({.prompt = 300}), ElementsAre(299));
  EXPECT_THAT(planned({.start = 299, .prompt = 300}), ElementsAre());
  EXPECT_THAT(planned({.prompt = 1}), ElementsAre());
  const std::vector<std::int64_t> foolish{-5, 0, 7, 7, 3, 10, 11};
  EXPECT_THAT(planned({.prompt = 10, .boundaries = foolish}), ElementsAre(3, 7));
}

TEST(SnapshotPlan, TakesTheFirstAndTheLastOfMoreThanTheCacheHolds) {
  using testing::ElementsAre;
  const std::vector<std::int64_t> boundaries{100, 120, 140, 160, 180};
  const auto limited = [&](std::int64_t most) {
    return planned({.prompt = 200, .boundaries = boundaries, .most_boundaries = most});
  };
  EXPECT_THAT(limited(5), ElementsAre(100, 120, 140, 160, 180));
  EXPECT_THAT(limited(4), ElementsAre(100, 140, 160, 180));
  EXPECT_THAT(limited(2), ElementsAre(100, 180));
  EXPECT_THAT(limited(1), ElementsAre(180));
}

TEST(SnapshotPlan, WholeStatesAreTakenAtTheLastBoundary) {
  const std::vector<std::int64_t> boundaries{100, 5000};
  EXPECT_EQ(plan_state_snapshots({.prompt = 5025, .boundaries = boundaries}),
            (std::vector<PlannedSnapshot>{{.length = 5000}}));
  EXPECT_TRUE(plan_state_snapshots({.start = 5000, .prompt = 5025, .boundaries = boundaries}).empty());
}

}  // namespace
}  // namespace lily
