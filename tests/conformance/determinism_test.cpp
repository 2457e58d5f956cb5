// Determinism on the real CPU backend with LilyTiny: random schedules of conversations give the tokens of cold, lone,
// 64-token-chunk runs, whatever cache, batch, chunks, cancels and restarts do. The many schedules run on the
// hash model (tests/unit/engine/schedules_test.cpp); here a few, to see that the backend keeps its side.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>

#include "model/checkpoint.h"
#include "support/random_schedule.h"
#include "support/source_dir.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using test::Tokens;

const fs::path kTiny = source_dir() / "models" / "lily-tiny";

class Determinism : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!fs::exists(kTiny / "config.json")) return;
    auto checkpoint = Checkpoint::open(kTiny);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*checkpoint));
    alone_ = make_backend();
  }
  static void TearDownTestSuite() {
    alone_.reset();
    checkpoint_.reset();
    answers_.clear();
  }
  void SetUp() override {
    if (!checkpoint_) GTEST_SKIP() << "models/lily-tiny is not here";
    std::string pattern = (fs::temp_directory_path() / "lily-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    if (!directory_.empty()) fs::remove_all(directory_);
  }

  static std::unique_ptr<Backend> make_backend() {
    BackendOptions options;
    options.n_threads =
        1;  // threads are the business of cpu_backend_test.cpp; here they would only wait for each other
    auto backend = make_cpu_backend(*checkpoint_, options);
    if (!backend) ADD_FAILURE() << backend.error().message;
    return std::move(*backend);
  }

  static TokenId run_step(Sequence& sequence, std::span<const TokenId> tokens) {
    StepItem item{.sequence = &sequence, .tokens = tokens, .want = Want::Greedy};
    const auto done = alone_->step({&item, 1});
    EXPECT_TRUE(done) << done.error().message;
    return item.greedy;
  }

  // Greedy answer of the backend by itself, without engine. Prompts are cut at 64 tokens, as no engine option does.
  static Tokens cold_answer(const Tokens& prompt, std::int64_t limit) {
    auto [it, is_new] = answers_.try_emplace({prompt, limit});
    if (!is_new) return it->second;
    Tokens& answer = it->second;
    if (limit == 0) return answer;
    auto sequence = alone_->create(std::ssize(prompt) + limit);
    EXPECT_TRUE(sequence);
    TokenId next = -1;
    for (std::size_t at = 0; at < prompt.size(); at += 64) {
      next = run_step(**sequence, std::span(prompt).subspan(at, std::min<std::size_t>(64, prompt.size() - at)));
    }
    while (next != kStop) {
      answer.push_back(next);
      if (std::ssize(answer) == limit) break;
      next = run_step(**sequence, std::span(&next, 1));
    }
    return answer;
  }

  static test::ScheduleShape shape() {
    return {.n_requests = 10,
            .n_conversations = 3,
            .longest_message = 60,
            .longest_prompt = 260,
            .longest_answer = 9,
            .vocab = 1900,
            .stop_ids = {kStop}};
  }

  static Tokens long_prompt() {
    Tokens prompt = test::make_prompt(1, 400);
    for (TokenId& id : prompt) id += 100;
    return prompt;
  }

  static constexpr TokenId kStop = 7;
  static std::unique_ptr<Checkpoint> checkpoint_;
  static std::unique_ptr<Backend> alone_;
  static std::map<std::pair<Tokens, std::int64_t>, Tokens> answers_;
  std::string directory_;
};

std::unique_ptr<Checkpoint> Determinism::checkpoint_;
std::unique_ptr<Backend> Determinism::alone_;
std::map<std::pair<Tokens, std::int64_t>, Tokens> Determinism::answers_;

TEST_F(Determinism, RandomSchedulesAnswerAsColdRuns) {
  std::uint64_t hits = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    auto engine = Engine::create(make_backend(), test::random_options(seed, 512));
    ASSERT_TRUE(engine) << engine.error().message;
    test::RandomSchedule(seed, shape()).run(**engine, cold_answer);
    hits += (*engine)->stats().cache_hits;
    if (HasFailure()) FAIL() << "schedule " << seed;
  }
  EXPECT_GT(hits, 10u);
}

TEST_F(Determinism, SnapshotsFromDiskContinueAsIfComputedHere) {
  std::uint64_t hits = 0;
  for (unsigned round = 0; round < 3; ++round) {
    EngineOptions options = test::random_options(3, 512);
    options.cache_states = 0;
    options.cache_bytes = std::size_t{64} << 20;
    options.cache_directory = directory_;
    options.fingerprint = checkpoint_->fingerprint();
    auto engine = Engine::create(make_backend(), options);
    ASSERT_TRUE(engine) << engine.error().message;
    Request request{.prompt = long_prompt(), .boundaries = {300, 390}, .max_tokens = 12};
    request.stop_ids = {kStop};
    const auto result = generate_blocking(**engine, request);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->tokens, cold_answer(request.prompt, 12));
    hits += (*engine)->stats().cache_hits;
  }
  EXPECT_EQ(hits, 2u);
}

}  // namespace
}  // namespace lily
