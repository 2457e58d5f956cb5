// Snapshots that a prefill takes in passing: every message boundary is kept without a step for each, the memory they
// take is bounded, and they give way when there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/engine_support.h"

namespace lily {
namespace {

using fake::expected_answer;
using fake::kPageBytes;
using fake::kStateBytes;
using test::Gate;
using test::make_engine;
using test::make_prompt;
using test::Recorder;
using test::run;
using test::operator+;
using Tokens = std::vector<TokenId>;

// n messages of so many tokens, and three tokens that begin the answer.
struct ShortMessages {
  ShortMessages(int seed, std::int64_t n, std::int64_t message_tokens)
      : prompt(make_prompt(seed, n * message_tokens + 3)) {
    for (std::int64_t i = 1; i <= n; ++i) boundaries.push_back(i * message_tokens);
  }
  Request request(std::int64_t max_tokens = 4) const {
    return {.prompt = prompt, .boundaries = boundaries, .max_tokens = max_tokens, .stop_ids = {}};
  }
  // Shares the first `shared` tokens, and not the next one.
  Tokens parted(std::int64_t shared) const {
    Tokens other(prompt.begin(), prompt.begin() + shared);
    other.push_back(prompt[static_cast<std::size_t>(shared)] ^ 1);
    return other + make_prompt(99, 10);
  }

  Tokens prompt;
  std::vector<std::int64_t> boundaries;
};

// What the steps of an engine carried; read after they have run.
struct StepLog {
  fake::Options options(fake::Options backend = {}) {
    backend.before_step = [this, inner = std::move(backend.before_step)](std::span<const StepItem> items) {
      std::size_t n = 0;
      for (const StepItem& item : items) {
        n += item.marks.size();
        tokens += std::ssize(item.tokens);
      }
      marks.push_back(n);
      return inner ? inner(items) : std::nullopt;
    };
    return backend;
  }
  std::vector<std::size_t> marks;  // of each step
  std::int64_t tokens = 0;
};

TEST(SnapshotMarks, AColdPromptOfShortMessagesIsSharedUpToEveryBoundary) {
  const auto memory = std::make_shared<fake::Memory>();
  StepLog log;
  const auto engine = make_engine({}, log.options(), memory);
  const ShortMessages chat(1, 30, 5);
  EXPECT_EQ(run(*engine, chat.request()).tokens, expected_answer(chat.prompt, 4, {}));
  EXPECT_EQ(engine->stats().steps, 4u);  // the whole prompt at once, three tokens of the answer
  EXPECT_EQ(log.marks.front(), 30u);
  EXPECT_EQ(engine->stats().cache_entries, 31u);  // and the end
  EXPECT_LE(static_cast<std::size_t>(memory->bytes()), engine->stats().cache_used_bytes);
  for (const std::int64_t boundary : chat.boundaries) {
    const Tokens other = chat.parted(boundary);
    const auto answer = run(*engine, {.prompt = other, .max_tokens = 4, .stop_ids = {}});
    EXPECT_EQ(answer.finish.usage.cached_tokens, boundary);
    EXPECT_EQ(answer.tokens, expected_answer(other, 4, {})) << boundary;
  }
}

TEST(SnapshotMarks, AStepTakesNoMoreThanItsShareOfTheBudget) {
  constexpr std::size_t kMost = 4;
  const auto memory = std::make_shared<fake::Memory>();
  StepLog log;
  const auto engine = make_engine({.cache_bytes = 8 * kMost * kStateBytes}, log.options(), memory);
  const ShortMessages chat(1, 30, 5);
  EXPECT_EQ(run(*engine, chat.request(1)).tokens, expected_answer(chat.prompt, 1, {}));
  // Four boundaries in passing and one where the chunk ends, six times; then the rest of the prompt.
  EXPECT_THAT(log.marks, testing::ElementsAre(4, 4, 4, 4, 4, 4, 0));
  EXPECT_LE(engine->stats().cache_used_bytes, 8 * kMost * kStateBytes);
  EXPECT_LE(static_cast<std::size_t>(memory->bytes()), engine->stats().cache_used_bytes);
}

TEST(SnapshotMarks, TheBudgetHoldsWithMoreBoundariesThanItHasRoomFor) {
  constexpr std::size_t kBudget = 20 * kStateBytes;
  const auto memory = std::make_shared<fake::Memory>();
  StepLog log;
  const auto engine = make_engine({.cache_bytes = kBudget}, log.options(), memory);
  for (int seed = 0; seed < 20; ++seed) {
    const ShortMessages chat(seed, 100, 7);
    const std::size_t before = log.marks.size();
    EXPECT_EQ(run(*engine, chat.request()).tokens, expected_answer(chat.prompt, 4, {}));
    EXPECT_LE(log.marks.size() - before, 20u / 3 + 2 + 4);  // three boundaries a step, of those that the cache can hold
    ASSERT_LE(engine->stats().cache_used_bytes, kBudget);
    ASSERT_LE(static_cast<std::size_t>(memory->bytes()), kBudget);
    // The next turn comes back to 700; whichever gave way there saves a message or two.
    EXPECT_GE(run(*engine, chat.request()).finish.usage.cached_tokens, 700 - 2 * 7);
  }
}

TEST(SnapshotMarks, WithoutMemoryForThemTheStepRunsWithout) {
  StepLog log;
  const auto engine = make_engine({}, log.options({.max_states = 12}));
  const ShortMessages chat(1, 30, 5);
  EXPECT_EQ(run(*engine, chat.request()).tokens, expected_answer(chat.prompt, 4, {}));
  ASSERT_GE(log.marks.size(), 2u);
  EXPECT_EQ(log.marks[0], 30u);
  EXPECT_EQ(log.marks[1], 0u);
  EXPECT_EQ(engine->stats().failed, 0u);
  EXPECT_EQ(run(*engine, {.prompt = chat.parted(150), .max_tokens = 1}).finish.usage.cached_tokens, 0);
  // Few enough still work.
  const ShortMessages other(2, 5, 5);
  run(*engine, other.request());
  EXPECT_EQ(run(*engine, {.prompt = other.parted(15), .max_tokens = 1}).finish.usage.cached_tokens, 15);
}

TEST(SnapshotMarks, HalfOfTheCacheGivesWayToNewOnes) {
  StepLog log;
  const auto engine = make_engine({}, log.options({.max_states = 30}));
  const ShortMessages old(1, 20, 5), recent(2, 16, 5);
  run(*engine, old.request());
  EXPECT_EQ(engine->stats().cache_entries, 21u);
  const std::size_t before = log.marks.size();
  EXPECT_EQ(run(*engine, recent.request()).tokens, expected_answer(recent.prompt, 4, {}));
  EXPECT_EQ(log.marks[before], 16u);
  EXPECT_EQ(log.marks[before + 1], 16u);
  EXPECT_EQ(run(*engine, {.prompt = recent.parted(40), .max_tokens = 1}).finish.usage.cached_tokens, 40);
  EXPECT_GT(run(*engine, {.prompt = old.parted(100), .max_tokens = 1}).finish.usage.cached_tokens, 0);
}

TEST(SnapshotMarks, ThoseOfACancelledPrefillStay) {
  Gate gate;
  fake::Options backend{.max_batch_tokens = 64};
  backend.before_step = [&](auto) -> std::optional<Error> { return gate.pass(), std::nullopt; };
  const auto engine = make_engine({}, backend);
  const ShortMessages chat(1, 50, 20);
  const auto recorder = std::make_shared<Recorder>();
  const auto id = engine->submit(chat.request(), recorder);
  ASSERT_TRUE(id);
  gate.let(3);
  gate.wait_for_visitor();  // 192 tokens have run
  engine->cancel(*id);
  gate.open();  // 256
  recorder->wait();
  EXPECT_EQ(recorder->finish().reason, FinishReason::Cancelled);
  for (const std::int64_t boundary : {20, 180, 240}) {
    EXPECT_EQ(run(*engine, {.prompt = chat.parted(boundary), .max_tokens = 1}).finish.usage.cached_tokens, boundary);
  }
  EXPECT_EQ(run(*engine, {.prompt = chat.parted(260), .max_tokens = 1}).finish.usage.cached_tokens, 240);
  EXPECT_EQ(run(*engine, chat.request()).tokens, expected_answer(chat.prompt, 4, {}));
}

TEST(SnapshotMarks, TwinsThatPrefillTogetherRunThePromptOnce) {
  Gate gate;
  StepLog log;
  fake::Options backend{.max_batch_tokens = 32};
  backend.before_step = [&](auto) -> std::optional<Error> { return gate.pass(), std::nullopt; };
  const auto engine = make_engine({}, log.options(std::move(backend)));
  const ShortMessages chat(1, 40, 8);
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int i = 0; i < 3; ++i) {
    recorders.push_back(std::make_shared<Recorder>());
    ASSERT_TRUE(engine->submit(chat.request(1), recorders.back()));
  }
  gate.open();
  std::int64_t n_uncached = 0;
  for (const auto& recorder : recorders) {
    recorder->wait();
    const Usage usage = recorder->finish().usage;
    n_uncached += usage.prompt_tokens - usage.cached_tokens;
    EXPECT_EQ(recorder->tokens(), expected_answer(chat.prompt, 1, {}));
  }
  engine->shutdown(0);
  EXPECT_EQ(log.tokens, 320 + 3 * 3);  // each runs what follows the last boundary
  EXPECT_EQ(n_uncached, log.tokens);
}

}  // namespace
}  // namespace lily
