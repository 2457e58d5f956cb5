// The request's life through Engine::create: answers, limits, stops, cancel, queue, memory, faults, shutdown.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "engine/generate.h"
#include "support/engine_support.h"
#include "support/fake_backend.h"

namespace lily {
namespace {

using fake::expected_answer;
using fake::FakeBackend;
using fake::kStopId;
using test::Gate;
using test::make_engine;
using test::make_prompt;
using test::Recorder;
using test::run;

TEST(Engine, AnswersAsTheModelDoes) {
  const auto engine = make_engine();
  const auto prompt = make_prompt(1, 100);
  const GenerateResult result = run(*engine, {.prompt = prompt, .max_tokens = 40, .stop_ids = {kStopId}});
  EXPECT_EQ(result.tokens, expected_answer(prompt, 40));
  EXPECT_EQ(result.finish.usage.prompt_tokens, 100);
  EXPECT_EQ(result.finish.usage.completion_tokens, std::ssize(result.tokens));
}

TEST(Engine, StopTokenEndsTheAnswerAndIsNotPartOfIt) {
  const auto engine = make_engine();
  const auto prompt = make_prompt(2, 10);
  const auto free_run = expected_answer(prompt, 10, {});
  const GenerateResult result = run(*engine, {.prompt = prompt, .max_tokens = 10, .stop_ids = {free_run[4]}});
  EXPECT_EQ(result.finish.reason, FinishReason::Stop);
  EXPECT_EQ(result.tokens, std::vector<TokenId>(free_run.begin(), free_run.begin() + 4));
}

TEST(Engine, P01_NoTokensRunsAndCachesThePrompt) {
  const auto engine = make_engine();
  const auto prompt = make_prompt(3, 50);
  const GenerateResult warm = run(*engine, {.prompt = prompt, .max_tokens = 0});
  EXPECT_TRUE(warm.tokens.empty());
  EXPECT_EQ(warm.finish.reason, FinishReason::Length);
  const GenerateResult again = run(*engine, {.prompt = prompt, .max_tokens = 0});
  EXPECT_EQ(again.finish.usage.cached_tokens, 50);
  const GenerateResult answer = run(*engine, {.prompt = prompt, .max_tokens = 5, .stop_ids = {}});
  EXPECT_EQ(answer.finish.usage.cached_tokens, 49);
  EXPECT_EQ(answer.tokens, expected_answer(prompt, 5, {}));
  EXPECT_EQ(test::refusal(*engine, {.prompt = prompt, .max_tokens = -2}), ErrorCode::InvalidArgument);
}

TEST(Engine, P03_PromptAtTheLimit) {
  const auto engine = make_engine({.max_seq = 64});
  for (const int n : {64, 65, 640}) {
    EXPECT_EQ(test::refusal(*engine, {.prompt = make_prompt(4, n)}), ErrorCode::InvalidArgument) << n;
  }
  const GenerateResult result = run(*engine, {.prompt = make_prompt(4, 63), .stop_ids = {}});
  EXPECT_EQ(result.tokens.size(), 1u);
  EXPECT_EQ(result.finish.reason, FinishReason::Length);
}

TEST(Engine, P04_AnswerReachesTheLimit) {
  const auto engine = make_engine({.max_seq = 512});
  const auto prompt = make_prompt(5, 500);
  const GenerateResult result = run(*engine, {.prompt = prompt, .stop_ids = {}});
  EXPECT_EQ(result.tokens, expected_answer(prompt, 12, {}));
  EXPECT_EQ(result.finish.reason, FinishReason::Length);
  EXPECT_EQ(run(*engine, {.prompt = prompt, .stop_ids = {}}).tokens, result.tokens);
}

TEST(Engine, RefusesWhatCannotBeRun) {
  const auto engine = make_engine();
  EXPECT_EQ(test::refusal(*engine, {}), ErrorCode::InvalidArgument);
  EXPECT_EQ(test::refusal(*engine, {.prompt = {-1}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(test::refusal(*engine, {.prompt = {fake::kShape.vocab}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(engine->stats().refused, 3u);
}

TEST(Engine, RefusesOptionsThatContradict) {
  const auto code = [](EngineOptions options) {
    return Engine::create(std::make_unique<FakeBackend>(), std::move(options)).error().code;
  };
  EXPECT_EQ(code({.max_seq = 1}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({.max_seq = fake::kShape.max_positions + 1}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({.max_active = 0}), ErrorCode::InvalidArgument);
  EXPECT_EQ(code({.cache_states = 2, .cache_directory = "/tmp"}), ErrorCode::InvalidArgument);
}

TEST(Engine, X06_ManyAtOnceAnswerAsAlone) {
  const auto engine = make_engine({.max_active = 5});
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int i = 0; i < 24; ++i) {
    recorders.push_back(std::make_shared<Recorder>());
    Request request{.prompt = make_prompt(i % 7, 20 + 37 * i), .max_tokens = 30, .stop_ids = {kStopId}};
    ASSERT_TRUE(engine->submit(std::move(request), recorders.back()));
  }
  for (int i = 0; i < 24; ++i) {
    recorders[static_cast<std::size_t>(i)]->wait();
    EXPECT_EQ(recorders[static_cast<std::size_t>(i)]->tokens(), expected_answer(make_prompt(i % 7, 20 + 37 * i), 30));
  }
}

TEST(Engine, LongPrefillDoesNotStallStreams) {
  Gate gate;
  std::atomic<int> most_prompt_tokens{0};
  fake::Options options{.max_batch_tokens = 4096};
  options.before_step = [&](std::span<const StepItem> items) -> std::optional<Error> {
    gate.pass();
    bool streams = false;
    int prompt_tokens = 0;
    for (const StepItem& item : items) {
      if (item.tokens.size() == 1)
        streams = true;
      else
        prompt_tokens += static_cast<int>(item.tokens.size());
    }
    if (streams) most_prompt_tokens = std::max(most_prompt_tokens.load(), prompt_tokens);
    return std::nullopt;
  };
  // A target that no step meets: the chunk goes to its least.
  const auto engine = make_engine({.busy_step_seconds = 1e-12}, options);
  const auto stream = std::make_shared<Recorder>();
  const auto prefill = std::make_shared<Recorder>();
  ASSERT_TRUE(engine->submit({.prompt = make_prompt(1, 10), .max_tokens = 400, .stop_ids = {}}, stream));
  gate.let(3);
  ASSERT_TRUE(engine->submit({.prompt = make_prompt(2, 8000), .max_tokens = 1, .stop_ids = {}}, prefill));
  gate.open();
  stream->wait();
  prefill->wait();
  EXPECT_LE(most_prompt_tokens, ChunkPacer::kFirst);
  // 8000 tokens at 32 a step need more steps than half of the stream's tokens: both went on together.
  EXPECT_GE(prefill->progress_calls(), 200);
}

TEST(Engine, PrefillsShareTheStepsInTurn) {
  Gate gate;
  fake::Options options{.max_batch_tokens = 64};
  std::vector<const Sequence*> order;
  options.before_step = [&](std::span<const StepItem> items) -> std::optional<Error> {
    gate.pass();
    for (const StepItem& item : items) order.push_back(item.sequence);
    return std::nullopt;
  };
  const auto engine = make_engine({.cache_bytes = 0}, options);
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int i = 0; i < 3; ++i) {
    recorders.push_back(std::make_shared<Recorder>());
    ASSERT_TRUE(engine->submit({.prompt = make_prompt(i, 640), .max_tokens = 0}, recorders.back()));
  }
  gate.open();
  for (const auto& recorder : recorders) recorder->wait();
  engine->shutdown(0);
  ASSERT_EQ(order.size(), 30u);
  // The first steps may run before all three were submitted; after that no request has two turns in a row.
  int repeats = 0;
  for (std::size_t i = 1; i < order.size(); ++i) repeats += order[i] == order[i - 1];
  EXPECT_LE(repeats, 2);
}

TEST(Engine, O01_CancelStopsWithinAStepInPrefillAndDecode) {
  for (const std::int64_t n_prompt : {10, 100000}) {  // decoding, prefilling
    Gate gate;
    std::atomic<int> steps{0};
    fake::Options options{.max_batch_tokens = 64};
    options.before_step = [&](std::span<const StepItem>) -> std::optional<Error> {
      gate.pass();
      ++steps;
      return std::nullopt;
    };
    const auto engine = make_engine({.max_seq = 200000}, options);
    const auto recorder = std::make_shared<Recorder>();
    const auto id = engine->submit({.prompt = make_prompt(1, n_prompt), .stop_ids = {}}, recorder);
    ASSERT_TRUE(id);
    gate.let(5);
    engine->cancel(*id);
    gate.open();
    recorder->wait();
    EXPECT_EQ(recorder->finish().reason, FinishReason::Cancelled);
    EXPECT_LE(steps, 6);
    engine->cancel(*id);  // finished: ignored
    EXPECT_EQ(engine->stats().cancelled, 1u);
    EXPECT_EQ(engine->stats().active, 0);
    const auto prompt = make_prompt(2, 20);
    EXPECT_EQ(run(*engine, {.prompt = prompt, .max_tokens = 3, .stop_ids = {}}).tokens, expected_answer(prompt, 3, {}));
  }
}

TEST(Engine, CancelWhileQueued) {
  Gate gate;
  fake::Options options;
  options.before_step = [&](auto) -> std::optional<Error> { return gate.pass(), std::nullopt; };
  const auto engine = make_engine({.max_active = 1}, options);
  const auto first = std::make_shared<Recorder>();
  const auto second = std::make_shared<Recorder>();
  ASSERT_TRUE(engine->submit({.prompt = make_prompt(1, 10), .max_tokens = 3, .stop_ids = {}}, first));
  const auto id = engine->submit({.prompt = make_prompt(2, 10)}, second);
  engine->cancel(*id);
  gate.open();
  second->wait();
  EXPECT_EQ(second->finish().reason, FinishReason::Cancelled);
  EXPECT_EQ(second->finish().usage.prompt_tokens, 10);
  first->wait();
}

TEST(Engine, QueueIsBoundedAndInOrder) {
  Gate gate;
  fake::Options options;
  options.before_step = [&](auto) -> std::optional<Error> { return gate.pass(), std::nullopt; };
  const auto engine = make_engine({.max_active = 1, .max_queued = 2}, options);
  std::vector<int> finished;
  std::mutex mutex;
  std::vector<std::shared_ptr<Recorder>> recorders;
  const auto submit = [&](int i) {
    auto recorder = std::make_shared<Recorder>([&, i](const Finish&) {
      const std::lock_guard lock(mutex);
      finished.push_back(i);
    });
    const bool accepted =
        engine->submit({.prompt = make_prompt(i, 10), .max_tokens = 3, .stop_ids = {}}, recorder).has_value();
    if (accepted) recorders.push_back(recorder);
    return accepted;
  };
  ASSERT_TRUE(submit(0));
  gate.wait_for_visitor();  // running, so that the queue is empty
  ASSERT_TRUE(submit(1));
  ASSERT_TRUE(submit(2));
  EXPECT_EQ(engine->stats().queued, 2);
  EXPECT_FALSE(submit(3));
  gate.open();
  for (const auto& recorder : recorders) recorder->wait();
  EXPECT_EQ(finished, (std::vector<int>{0, 1, 2}));
}

TEST(Engine, O03_BudgetRefusesBeforePrefillAndQueuesWhatFitsLater) {
  const FakeBackend sizes;
  const auto engine = make_engine({.kv_bytes = sizes.sequence_bytes(200)});
  EXPECT_EQ(test::refusal(*engine, {.prompt = make_prompt(1, 10), .max_tokens = 1000}), ErrorCode::OutOfMemory);
  EXPECT_EQ(engine->stats().steps, 0u);
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int i = 0; i < 4; ++i) {  // any two together exceed the budget
    recorders.push_back(std::make_shared<Recorder>());
    ASSERT_TRUE(engine->submit({.prompt = make_prompt(i, 100), .max_tokens = 50, .stop_ids = {}}, recorders.back()));
  }
  for (int i = 0; i < 4; ++i) {
    recorders[static_cast<std::size_t>(i)]->wait();
    EXPECT_EQ(recorders[static_cast<std::size_t>(i)]->tokens(), expected_answer(make_prompt(i, 100), 50, {}));
  }
  EXPECT_EQ(engine->stats().kv_reserved_bytes, 0u);
}

TEST(Engine, O03_AllocationFailureInFlightEndsThatRequestOnly) {
  fake::Options options{.max_pages = 40};
  const auto engine = make_engine({.cache_bytes = 1 << 20}, options);
  const auto small = std::make_shared<Recorder>();
  const auto large = std::make_shared<Recorder>();
  ASSERT_TRUE(engine->submit({.prompt = make_prompt(1, 20), .max_tokens = 200, .stop_ids = {}}, small));
  ASSERT_TRUE(engine->submit({.prompt = make_prompt(2, 1000), .max_tokens = 10, .stop_ids = {}}, large));
  large->wait();
  small->wait();
  EXPECT_EQ(large->finish().reason, FinishReason::Error);
  EXPECT_EQ(large->finish().error->code, ErrorCode::OutOfMemory);
  EXPECT_EQ(small->tokens(), expected_answer(make_prompt(1, 20), 200, {}));
  EXPECT_TRUE(engine->stats().healthy);
}

TEST(Engine, O03_CreateWithoutMemoryEndsThatRequestOnly) {
  std::atomic<bool> full{true};
  fake::Options options;
  options.before_create = [&]() -> std::optional<Error> {
    if (full) return Error{ErrorCode::OutOfMemory, "no memory"};
    return std::nullopt;
  };
  const auto engine = make_engine({}, options);
  const auto result = generate_blocking(*engine, {.prompt = make_prompt(1, 20), .max_tokens = 3});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::OutOfMemory);
  full = false;
  EXPECT_EQ(run(*engine, {.prompt = make_prompt(1, 20), .max_tokens = 3, .stop_ids = {}}).tokens.size(), 3u);
}

TEST(Engine, N07_NanFailsTheRequestAndDistrustsItsSnapshots) {
  std::atomic<bool> broken{false};
  fake::Options options;
  options.gives_nan = [&](const Sequence&) { return broken.load(); };
  const auto engine = make_engine({}, options);
  const auto prompt = make_prompt(1, 200);
  broken = true;
  const auto result = generate_blocking(*engine, {.prompt = prompt, .boundaries = {100, 150}, .max_tokens = 3});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::Internal);
  EXPECT_EQ(engine->stats().nan_logits, 1u);
  EXPECT_EQ(engine->stats().cache_entries, 0u);
  EXPECT_TRUE(engine->stats().healthy);
  broken = false;
  const GenerateResult again = run(*engine, {.prompt = prompt, .max_tokens = 3, .stop_ids = {}});
  EXPECT_EQ(again.finish.usage.cached_tokens, 0);
  EXPECT_EQ(again.tokens, expected_answer(prompt, 3, {}));
}

TEST(Engine, O04_BackendFaultFailsAllAndIsRemembered) {
  Gate gate;
  std::atomic<bool> broken{false};
  fake::Options options;
  options.before_step = [&](auto) -> std::optional<Error> {
    gate.pass();
    if (broken) return Error{ErrorCode::Internal, "device lost"};
    return std::nullopt;
  };
  const auto engine = make_engine({.max_active = 2}, options);
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int i = 0; i < 4; ++i) {  // two run, two wait
    recorders.push_back(std::make_shared<Recorder>());
    ASSERT_TRUE(engine->submit({.prompt = make_prompt(i, 20), .stop_ids = {}}, recorders.back()));
  }
  gate.let(4);
  broken = true;
  gate.open();
  for (const auto& recorder : recorders) {
    recorder->wait();
    EXPECT_EQ(recorder->finish().reason, FinishReason::Error);
  }
  EXPECT_FALSE(engine->stats().healthy);
  EXPECT_EQ(engine->stats().failed, 4u);
  EXPECT_EQ(test::refusal(*engine, {.prompt = make_prompt(1, 5)}), ErrorCode::Unavailable);
}

TEST(Engine, AThrowingBackendIsAFaultNotAnAbort) {
  fake::Options options;
  options.before_step = [](auto) -> std::optional<Error> { throw std::bad_alloc(); };
  const auto engine = make_engine({}, options);
  EXPECT_FALSE(generate_blocking(*engine, {.prompt = make_prompt(1, 5)}));
  EXPECT_FALSE(engine->stats().healthy);
}

TEST(Engine, O06_ShutdownDrainsThenCancels) {
  const auto drained = make_engine();
  const auto recorder = std::make_shared<Recorder>();
  ASSERT_TRUE(drained->submit({.prompt = make_prompt(1, 20), .max_tokens = 50, .stop_ids = {}}, recorder));
  drained->shutdown(60);
  EXPECT_EQ(recorder->finish().reason, FinishReason::Length);
  EXPECT_EQ(test::refusal(*drained, {.prompt = make_prompt(1, 5)}), ErrorCode::Unavailable);
  drained->shutdown(0);  // again: nothing

  const auto cut = make_engine({.max_seq = 1 << 20, .max_active = 1});
  const auto running = std::make_shared<Recorder>();
  const auto queued = std::make_shared<Recorder>();
  ASSERT_TRUE(cut->submit({.prompt = make_prompt(1, 20), .stop_ids = {}}, running));
  ASSERT_TRUE(cut->submit({.prompt = make_prompt(1, 20), .stop_ids = {}}, queued));
  cut->shutdown(0);
  EXPECT_EQ(running->finish().reason, FinishReason::Cancelled);
  EXPECT_EQ(queued->finish().reason, FinishReason::Cancelled);
}

TEST(Engine, NothingIsLeftBehind) {
  const auto memory = std::make_shared<fake::Memory>();
  {
    const auto engine = make_engine({}, {}, memory);
    run(*engine, {.prompt = make_prompt(1, 500), .max_tokens = 20});
    EXPECT_GT(memory->bytes(), 0);
  }
  EXPECT_EQ(memory->pages, 0);
  EXPECT_EQ(memory->states, 0);
}

TEST(Engine, CallbackCanEndTheAnswer) {
  const auto engine = make_engine();
  int seen = 0;
  const auto result =
      generate_blocking(*engine, {.prompt = make_prompt(1, 20), .stop_ids = {}}, [&](TokenId) { return ++seen < 7; });
  ASSERT_TRUE(result);
  EXPECT_EQ(result->finish.reason, FinishReason::Cancelled);
  EXPECT_EQ(result->tokens.size(), 7u);
}

TEST(ChunkPacer, FollowsTheTarget) {
  ChunkPacer pacer(0.1, 2048);
  EXPECT_EQ(pacer.chunk(), ChunkPacer::kFirst);
  for (int i = 0; i < 10; ++i) pacer.observe(pacer.chunk(), 0.01);
  EXPECT_EQ(pacer.chunk(), 2048);
  for (int i = 0; i < 20; ++i) pacer.observe(pacer.chunk(), 1);
  EXPECT_EQ(pacer.chunk(), ChunkPacer::kLeast);
  pacer.observe(3, 0.001);  // a short chunk proves nothing
  EXPECT_EQ(pacer.chunk(), ChunkPacer::kLeast);
  EXPECT_EQ(ChunkPacer(0.1, 8).chunk(), 8);
}

}  // namespace
}  // namespace lily
