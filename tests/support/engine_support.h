// What tests of the engine share: an engine on the fake backend, prompts, a sink that records, a gate for its steps.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/chunk_pacer.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "support/fake_backend.h"

namespace lily::test {

inline std::unique_ptr<Engine> make_engine(EngineOptions options = {}, fake::Options backend = {},
                                           std::shared_ptr<fake::Memory> memory = std::make_shared<fake::Memory>()) {
  auto engine =
      Engine::create(std::make_unique<fake::FakeBackend>(std::move(backend), std::move(memory)), std::move(options));
  if (!engine) ADD_FAILURE() << engine.error().message;
  return std::move(*engine);
}

// Prompts of the same seed begin alike: a longer one continues a shorter one.
inline std::vector<TokenId> make_prompt(int seed, std::int64_t n_tokens) {
  std::vector<TokenId> prompt;
  std::uint64_t state = static_cast<std::uint64_t>(seed) + 1000;
  for (std::int64_t i = 0; i < n_tokens; ++i) {
    state = fake::mix(state, static_cast<std::uint64_t>(i));
    prompt.push_back(1 + static_cast<TokenId>(state % static_cast<std::uint64_t>(fake::kShape.vocab - 1)));
  }
  return prompt;
}

inline std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline GenerateResult run(Engine& engine, Request request) {
  auto result = generate_blocking(engine, std::move(request));
  if (!result) {
    ADD_FAILURE() << result.error().message;
    return {};
  }
  return std::move(*result);
}

class Recorder : public EventSink {
 public:
  explicit Recorder(std::function<void(const Finish&)> finished = {}) : finished_(std::move(finished)) {}

  void on_prefill(std::int64_t, std::int64_t) override { ++progress_calls_; }
  void on_token(TokenId id) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(id);
    changed_.notify_all();
  }
  void on_finish(const Finish& finish) override {
    if (finished_) finished_(finish);
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(finish_) << "on_finish came twice";
    finish_ = finish;
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finish_.has_value(); });
  }
  void wait_for_tokens(std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finish_.has_value() || tokens_.size() >= n; });
  }
  std::vector<TokenId> tokens() const {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  Finish finish() const {
    const std::lock_guard lock(mutex_);
    return finish_.value();
  }
  int progress_calls() const { return progress_calls_; }

 private:
  std::function<void(const Finish&)> finished_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  std::optional<Finish> finish_;
  std::atomic<int> progress_calls_{0};
};

// Stands in a backend's step: each pass() waits until the test lets it through.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++visitors_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || allowed_ > 0; });
    if (!open_) --allowed_;
    ++passed_;
    changed_.notify_all();
  }
  // Lets n steps through and returns when they have begun.
  void let(int n) {
    std::unique_lock lock(mutex_);
    const int target = passed_ + n;
    allowed_ += n;
    changed_.notify_all();
    changed_.wait(lock, [&] { return passed_ >= target; });
  }
  void wait_for_visitor() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return visitors_ > passed_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int allowed_ = 0;
  int visitors_ = 0;
  int passed_ = 0;
};

inline std::optional<ErrorCode> refusal(Engine& engine, Request request) {
  const auto submitted = engine.submit(std::move(request), std::make_shared<Recorder>());
  return submitted ? std::nullopt : std::optional(submitted.error().code);
}

}  // namespace lily::test
