// A random schedule of requests over a few conversations that share prefixes: new turns, regenerations, edits, other
// questions, cancels, batches, any boundaries; run on an engine and compared with what the model alone answers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "support/engine_support.h"

namespace lily::test {

using Tokens = std::vector<TokenId>;
// The answer to a prompt, at most `limit` tokens, without engine and cache.
using Oracle = std::function<Tokens(const Tokens& prompt, std::int64_t limit)>;

struct ScheduleShape {
  int n_requests = 30;
  int n_conversations = 4;
  std::int64_t longest_message = 90;
  std::int64_t longest_prompt = 1500;
  std::int64_t longest_answer = 25;
  TokenId vocab = 1000;
  std::vector<TokenId> stop_ids{fake::kStopId};
};

class RandomSchedule {
 public:
  RandomSchedule(unsigned seed, ScheduleShape shape) : random_(seed), shape_(std::move(shape)) {
    const Tokens system = message();
    for (int i = 0; i < shape_.n_conversations; ++i) conversations_.push_back(pick(2) ? system : message());
  }

  void run(Engine& engine, const Oracle& oracle) {
    for (int i = 0; i < shape_.n_requests; ++i) {
      submit(engine);
      if (pick(3) == 0) settle(engine, oracle, pending_.size());  // let all of a batch finish
      if (pick(3) == 0 && !pending_.empty()) {                    // or the client of one leaves
        Pending& left = pending_[pick(pending_.size())];
        if (pick(2)) left.recorder->wait_for_tokens(1 + pick(5));
        engine.cancel(left.id);
      }
    }
    settle(engine, oracle, pending_.size());
  }

 private:
  struct Pending {
    RequestId id = 0;
    std::size_t conversation = 0;
    Tokens prompt;
    std::int64_t limit = 0;
    bool caches = true;
    std::shared_ptr<Recorder> recorder;
  };

  std::size_t pick(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  Tokens message() {
    Tokens tokens(1 + pick(static_cast<std::size_t>(shape_.longest_message)));
    for (TokenId& id : tokens) id = static_cast<TokenId>(pick(static_cast<std::size_t>(shape_.vocab)));
    return tokens;
  }

  // Changes a conversation as clients do, and returns the prompt for its next request.
  Tokens next_prompt(Tokens& history) {
    switch (pick(6)) {
      case 0:
        break;  // regenerate
      case 1:
        history.resize(1 + pick(history.size()));
        break;  // cut back
      case 2:
        history[pick(history.size())] ^= 1;
        break;  // an edit, or other tokens for a text
      case 3:
        history = conversations_[pick(conversations_.size())];
        break;  // a fork
      default:
        break;
    }
    if (pick(4)) history = history + message();
    if (std::ssize(history) > shape_.longest_prompt) history.resize(1 + pick(100));
    return history;
  }

  void submit(Engine& engine) {
    Pending pending;
    pending.conversation = pick(conversations_.size());
    pending.prompt = next_prompt(conversations_[pending.conversation]);
    pending.limit = static_cast<std::int64_t>(pick(static_cast<std::size_t>(shape_.longest_answer)));
    pending.caches = pick(10) != 0;
    Request request{.prompt = pending.prompt,
                    .max_tokens = pending.limit,
                    .stop_ids = shape_.stop_ids,
                    .cache_key = pick(2) ? std::to_string(pick(3)) : "",
                    .use_cache = pending.caches};
    for (std::size_t n = pick(4) ? pick(5) : pick(40); n > 0; --n) {
      request.boundaries.push_back(1 + static_cast<std::int64_t>(pick(pending.prompt.size())));
    }
    std::ranges::sort(request.boundaries);
    pending.recorder = std::make_shared<Recorder>();
    auto id = engine.submit(std::move(request), pending.recorder);
    if (!id) {  // the queue is bounded
      EXPECT_EQ(id.error().code, ErrorCode::Unavailable);
      return;
    }
    pending.id = *id;
    pending_.push_back(std::move(pending));
  }

  void settle(Engine&, const Oracle& oracle, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) check(pending_[i], oracle);
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(n));
  }

  void check(const Pending& pending, const Oracle& oracle) {
    pending.recorder->wait();
    const Finish finish = pending.recorder->finish();
    const Tokens answer = pending.recorder->tokens();
    ASSERT_NE(finish.reason, FinishReason::Error) << finish.error->message;
    Tokens expected = oracle(pending.prompt, pending.limit);
    if (finish.reason == FinishReason::Cancelled) expected.resize(std::min(expected.size(), answer.size()));
    ASSERT_EQ(answer, expected);
    const std::int64_t most = std::ssize(pending.prompt) - (pending.limit > 0);
    ASSERT_LE(finish.usage.cached_tokens, pending.caches ? most : 0);
    ASSERT_EQ(finish.usage.completion_tokens, std::ssize(answer));
    if (pick(2)) conversations_[pending.conversation] = pending.prompt + answer;
  }

  std::mt19937 random_;
  ScheduleShape shape_;
  std::vector<Tokens> conversations_;
  std::vector<Pending> pending_;
};

// Options that differ in everything that must not change an answer.
inline EngineOptions random_options(unsigned seed, std::int64_t max_batch_tokens) {
  std::mt19937 random(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::int64_t>(random() % n); };
  EngineOptions options{.max_seq = 2048, .max_active = static_cast<int>(1 + pick(8)), .max_queued = 16};
  options.cache_states = random() % 3 == 0 ? static_cast<int>(1 + pick(4)) : 0;
  options.cache_bytes = random() % 8 == 0 ? 0 : std::size_t{1} << (15 + pick(10));
  options.prefill_chunk = pick(2) ? 0 : 1 + pick(static_cast<std::size_t>(max_batch_tokens));
  options.snapshot_interval = pick(3) ? 1 + pick(300) : 0;
  options.busy_step_seconds = pick(2) ? 1e-9 : 0.25;
  return options;
}

}  // namespace lily::test
