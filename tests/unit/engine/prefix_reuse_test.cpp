// What the prefix cache does for conversations: how much is reused, and that the answers stay those of a cold run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/engine_support.h"

namespace lily {
namespace {

using fake::expected_answer;
using test::Gate;
using test::make_engine;
using test::make_prompt;
using test::Recorder;
using test::run;
using test::operator+;
using Tokens = std::vector<TokenId>;

// A chat as the template renders it: with thinking off, the generation prompt holds an empty think block that history
// does not repeat.
struct Chat {
  Tokens history;  // up to the last complete message
  std::vector<std::int64_t> boundaries;
  int turn = 0;

  explicit Chat(int seed, std::int64_t system_tokens = 2000) : history(make_prompt(seed, system_tokens)) {
    boundaries.push_back(system_tokens);
  }
  Request ask(int seed, std::int64_t n_tokens, std::int64_t max_tokens = 20) {
    history = history + Tokens{900} + make_prompt(seed, n_tokens);
    boundaries.push_back(std::ssize(history));
    return {.prompt = history + Tokens{901, 902, 903},
            .boundaries = boundaries,
            .max_tokens = max_tokens,
            .stop_ids = {fake::kStopId}};
  }
  void hear(const Tokens& answer) {
    history = history + Tokens{901} + answer + Tokens{904};
    boundaries.push_back(std::ssize(history));
  }
};

class BothCaches : public testing::TestWithParam<int> {  // cache_states; 0: the trie
 protected:
  EngineOptions options() const { return {.cache_states = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(, BothCaches, testing::Values(0, 2), [](const auto& param) {
  return param.param == 0 ? "Trie" : "States" + std::to_string(param.param);
});

TEST_P(BothCaches, X01_SecondTurnReusesUpToTheEndOfTheFirstUserTurn) {
  const auto engine = make_engine(options());
  Chat chat(1);
  const auto first = run(*engine, chat.ask(2, 30));
  EXPECT_EQ(first.finish.usage.cached_tokens, 0);
  const std::int64_t first_user_turn = std::ssize(chat.history);
  chat.hear(first.tokens);
  const Request second = chat.ask(3, 30);
  const auto answer = run(*engine, second);
  EXPECT_EQ(answer.finish.usage.cached_tokens, first_user_turn);
  EXPECT_EQ(answer.tokens, expected_answer(second.prompt, 20));
}

TEST_P(BothCaches, X07_ThirtyTurnsEachThroughTheCache) {
  const auto engine = make_engine(options());
  Chat chat(1, 100);
  std::int64_t shared = 0;
  for (int turn = 0; turn < 30; ++turn) {
    const Request request = chat.ask(10 + turn, 15);
    const Tokens prompt = request.prompt;
    const auto answer = run(*engine, request);
    EXPECT_EQ(answer.finish.usage.cached_tokens, shared) << turn;
    EXPECT_EQ(answer.tokens, expected_answer(prompt, 20)) << turn;
    shared = std::ssize(chat.history);
    chat.hear(answer.tokens);
  }
}

TEST_P(BothCaches, X13_KeyNeverSkipsTheTokenCheck) {
  const auto engine = make_engine(options());
  Request a{.prompt = make_prompt(1, 500), .max_tokens = 10, .cache_key = "k1"};
  Request b{.prompt = make_prompt(2, 500), .max_tokens = 10, .cache_key = "k1"};
  a.stop_ids = b.stop_ids = {fake::kStopId};
  const Tokens prompt_b = b.prompt;
  run(*engine, a);
  const auto answer = run(*engine, b);
  EXPECT_EQ(answer.finish.usage.cached_tokens, 0);
  EXPECT_EQ(answer.tokens, expected_answer(prompt_b, 10));
  Request long_key = b;
  long_key.cache_key = std::string(10000, 'k') + "\n";
  EXPECT_EQ(run(*engine, long_key).finish.usage.cached_tokens, 499);
}

TEST_P(BothCaches, K05_HistoryInOtherTokensIsAPartialHit) {
  const auto engine = make_engine(options());
  Chat chat(1);
  auto answer = run(*engine, chat.ask(2, 30, 40));
  const std::int64_t user_turn = std::ssize(chat.history);
  ASSERT_GE(answer.tokens.size(), 4u);
  answer.tokens[1] = 998;  // the client's text came back as other tokens than were sampled
  answer.tokens.erase(answer.tokens.begin() + 2);
  chat.hear(answer.tokens);
  const Request second = chat.ask(3, 10);
  const auto again = run(*engine, second);
  EXPECT_EQ(again.finish.usage.cached_tokens, user_turn);
  EXPECT_EQ(again.tokens, expected_answer(second.prompt, 20));
}

TEST_P(BothCaches, OptOutNeitherReadsNorFeeds) {
  const auto engine = make_engine(options());
  Request request{.prompt = make_prompt(1, 300), .max_tokens = 5, .use_cache = false};
  run(*engine, request);
  EXPECT_EQ(engine->stats().cache_entries, 0u);
  request.use_cache = true;
  run(*engine, request);
  EXPECT_GT(engine->stats().cache_entries, 0u);
  request.use_cache = false;
  EXPECT_EQ(run(*engine, request).finish.usage.cached_tokens, 0);
}

TEST_P(BothCaches, X08_ToolLoopWithThinkingKeepsTheEndState) {
  const auto engine = make_engine(options());
  Tokens prompt = make_prompt(1, 700);
  std::vector<std::int64_t> boundaries{600, 690};
  std::int64_t reusable = 0;
  for (int step = 0; step < 12; ++step) {  // each step's prompt goes on exactly where the answer ended
    Request request{.prompt = prompt, .boundaries = boundaries, .max_tokens = 25, .stop_ids = {fake::kStopId}};
    const auto answer = run(*engine, request);
    EXPECT_EQ(answer.finish.usage.cached_tokens, reusable) << step;
    EXPECT_EQ(answer.tokens, expected_answer(prompt, 25)) << step;
    // An answer cut by its limit has its last token still to be run.
    reusable = std::ssize(prompt) + std::ssize(answer.tokens) - (answer.finish.reason == FinishReason::Length);
    prompt = prompt + answer.tokens + Tokens{905} + make_prompt(50 + step, 40);
    boundaries.push_back(std::ssize(prompt));
    prompt = prompt + Tokens{901, 906};
  }
}

TEST(Trie, X02_SameSystemPromptOtherQuestion) {
  const auto engine = make_engine();
  Chat a(1, 5000), b(1, 5000);
  run(*engine, a.ask(2, 30));
  const Request question = b.ask(3, 30);
  const auto answer = run(*engine, question);
  EXPECT_EQ(answer.finish.usage.cached_tokens, 5000);
  EXPECT_EQ(answer.tokens, expected_answer(question.prompt, 20));
}

TEST(Trie, SharedPrefixIsLearntWhereNoBoundaryTellsOfIt) {
  const auto engine = make_engine();
  const Tokens system = make_prompt(1, 1000);
  const auto ask = [&](int seed) {
    return run(*engine, {.prompt = system + make_prompt(seed, 50), .max_tokens = 2}).finish.usage.cached_tokens;
  };
  EXPECT_EQ(ask(2), 0);
  EXPECT_EQ(ask(3), 0);  // parts from the first at 1000, which is remembered
  EXPECT_EQ(ask(4), 1000);
}

TEST(Trie, X04_CachedEqualsColdAtEverySizeAndCut) {
  for (const std::int64_t n : {63, 64, 65, 127, 128, 129, 2047, 2048, 2049, 29123}) {
    const Tokens prompt = make_prompt(static_cast<int>(n), n);
    const Tokens expected = expected_answer(prompt, 64, {});
    for (const std::int64_t cut : {n - 1, n, n + 1}) {
      const auto engine = make_engine();
      const Tokens longer = make_prompt(static_cast<int>(n), n + 2);
      run(*engine, {.prompt = Tokens(longer.begin(), longer.begin() + cut), .max_tokens = 0});
      const auto hit = run(*engine, {.prompt = prompt, .max_tokens = 64, .stop_ids = {}});
      EXPECT_EQ(hit.tokens, expected) << n << " cut at " << cut;
      if (cut <= n) {
        EXPECT_EQ(hit.finish.usage.cached_tokens, n - 1);
      }
    }
  }
}

TEST(Trie, X12_CachedTokensTellTheTruth) {
  const auto engine = make_engine();
  const Tokens prompt = make_prompt(1, 400);
  const std::vector<std::int64_t> boundaries{100, 395};
  const auto cached = [&](const Tokens& tokens) {
    const auto finish = run(*engine, {.prompt = tokens, .boundaries = boundaries, .max_tokens = 1}).finish;
    EXPECT_EQ(finish.usage.prompt_tokens, std::ssize(tokens));
    return finish.usage.cached_tokens;
  };
  EXPECT_EQ(cached(prompt), 0);
  EXPECT_EQ(cached(prompt), 395);
  EXPECT_EQ(cached(make_prompt(1, 200) + make_prompt(2, 200)), 100);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.cached_tokens, 495u);
  EXPECT_EQ(stats.cache_hits, 2u);
  EXPECT_EQ(stats.cache_misses, 1u);
}

TEST(Trie, X16_FinishSaysWhereThePromptParted) {
  const auto engine = make_engine();
  run(*engine, {.prompt = make_prompt(1, 300), .max_tokens = 5, .stop_ids = {}});
  const auto finish = run(*engine, {.prompt = make_prompt(1, 9) + make_prompt(2, 291), .max_tokens = 1}).finish;
  EXPECT_EQ(finish.diverged_at, 9);
  EXPECT_EQ(run(*engine, {.prompt = make_prompt(1, 350), .max_tokens = 1}).finish.diverged_at, 300);
}

TEST(Trie, RegenerationAndEditsComeBackToTheirBoundary) {
  const auto engine = make_engine();
  Chat chat(1, 500);
  const Request first = chat.ask(2, 30);
  const std::int64_t user_turn = std::ssize(chat.history);
  chat.hear(run(*engine, first).tokens);
  EXPECT_EQ(run(*engine, first).finish.usage.cached_tokens, user_turn);  // regenerate
  const std::int64_t assistant_turn = std::ssize(chat.history);
  run(*engine, chat.ask(3, 30));
  Chat edited = chat;  // the second question is asked otherwise
  edited.history.resize(static_cast<std::size_t>(assistant_turn));
  edited.boundaries = {500, user_turn, assistant_turn};
  const Request other = edited.ask(4, 30);
  const auto answer = run(*engine, other);
  EXPECT_EQ(answer.finish.usage.cached_tokens, assistant_turn);
  EXPECT_EQ(answer.tokens, expected_answer(other.prompt, 20));
}

TEST(Trie, SnapshotsOfACancelledPrefillStay) {
  Gate gate;
  fake::Options backend{.max_batch_tokens = 512};
  backend.before_step = [&](auto) -> std::optional<Error> { return gate.pass(), std::nullopt; };
  const auto engine = make_engine({.snapshot_interval = 1024}, backend);
  const Tokens prompt = make_prompt(1, 8000);
  const auto recorder = std::make_shared<Recorder>();
  const auto id = engine->submit({.prompt = prompt, .max_tokens = 5}, recorder);
  gate.let(8);
  engine->cancel(*id);
  gate.open();
  recorder->wait();
  ASSERT_EQ(recorder->finish().reason, FinishReason::Cancelled);
  const auto again = run(*engine, {.prompt = prompt, .max_tokens = 5, .stop_ids = {}});
  EXPECT_GE(again.finish.usage.cached_tokens, 7 * 512);
  EXPECT_EQ(again.tokens, expected_answer(prompt, 5, {}));
}

TEST(Trie, ARequestThatWaitedCatchesUpWithItsTwin) {
  Gate gate;
  std::atomic<std::int64_t> tokens_run{0};
  fake::Options backend{.max_batch_tokens = 512};
  backend.before_step = [&](std::span<const StepItem> items) -> std::optional<Error> {
    gate.pass();
    for (const StepItem& item : items) tokens_run += std::ssize(item.tokens);
    return std::nullopt;
  };
  const auto engine = make_engine({.snapshot_interval = 0}, backend);
  const Tokens system = make_prompt(1, 1000);
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int i = 0; i < 4; ++i) {
    recorders.push_back(std::make_shared<Recorder>());
    Request request{.prompt = system + make_prompt(10 + i, 100), .boundaries = {1000}, .max_tokens = 1};
    ASSERT_TRUE(engine->submit(std::move(request), recorders.back()));
  }
  gate.open();
  for (int i = 0; i < 4; ++i) {
    const auto& recorder = recorders[static_cast<std::size_t>(i)];
    recorder->wait();
    EXPECT_EQ(recorder->tokens(), expected_answer(system + make_prompt(10 + i, 100), 1, {}));
  }
  EXPECT_LT(tokens_run, 4 * 1100 - 400);  // alone they would run 4400
}

TEST(Trie, X14_EngineStaysWithinItsBudget) {
  const auto memory = std::make_shared<fake::Memory>();
  constexpr std::size_t kBudget = 4 << 20;
  const auto engine = make_engine({.cache_bytes = kBudget}, {}, memory);
  for (int i = 0; i < 100; ++i) {
    const Tokens prompt = make_prompt(i, 3000);
    run(*engine, {.prompt = prompt, .boundaries = {1500, 2990}, .max_tokens = 3});
    ASSERT_LE(engine->stats().cache_used_bytes, kBudget);
    ASSERT_LE(static_cast<std::size_t>(memory->bytes()), kBudget);
    ASSERT_EQ(run(*engine, {.prompt = prompt, .max_tokens = 1}).finish.usage.cached_tokens, 2990);
  }
}

TEST(Trie, ASnapshotThatCannotBeRestoredIsAMiss) {
  fake::Options backend;
  backend.before_restore = []() -> std::optional<Error> { return Error{ErrorCode::Io, "device"}; };
  const auto engine = make_engine({}, backend);
  const Tokens prompt = make_prompt(1, 200);
  run(*engine, {.prompt = prompt, .max_tokens = 1});
  const auto again = run(*engine, {.prompt = prompt, .max_tokens = 9, .stop_ids = {}});
  EXPECT_EQ(again.finish.usage.cached_tokens, 0);
  EXPECT_EQ(again.tokens, expected_answer(prompt, 9, {}));
}

}  // namespace
}  // namespace lily
