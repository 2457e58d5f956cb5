#include "apps/bench_speed.h"

#include <algorithm>
#include <chrono>
#include <future>

namespace lily::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kWarmUpTokens = 256;
// Sequences of one batch share their context but for this many tokens at its end, which make their states differ;
// running each context on its own would take hours where the batch is large and the context long.
constexpr std::int64_t kOwnTokens = 32;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<double> time_prefill(Backend& backend, const SpeedPlan& plan, std::int64_t count) {
  const auto tokens = random_tokens(static_cast<std::size_t>(count), plan.n_tokens, 0);
  LILY_TRY(const auto sequence, backend.create(count));
  const auto start = Clock::now();
  LILY_TRY_VOID(run_tokens(backend, *sequence, tokens, Want::Greedy));
  return seconds_since(start);
}

// The state of every sequence of a batch at the end of its context.
Result<std::vector<std::shared_ptr<const Snapshot>>> make_contexts(Backend& backend, const SpeedPlan& plan,
                                                                   std::int64_t context, int batch) {
  const std::int64_t own = std::min(context, kOwnTokens);
  std::shared_ptr<const Snapshot> common;
  if (context > own) {
    LILY_TRY(const auto sequence, backend.create(context));
    const auto tokens = random_tokens(static_cast<std::size_t>(context - own), plan.n_tokens, 0);
    LILY_TRY_VOID(run_tokens(backend, *sequence, tokens, Want::Nothing));
    LILY_TRY(common, backend.snapshot(*sequence));
  }
  std::vector<std::shared_ptr<const Snapshot>> contexts;
  for (int i = 0; i < batch; ++i) {
    LILY_TRY(const auto sequence, common ? backend.restore(*common, context) : backend.create(context));
    const auto tokens = random_tokens(static_cast<std::size_t>(own), plan.n_tokens, 1 + static_cast<std::uint64_t>(i));
    LILY_TRY_VOID(run_tokens(backend, *sequence, tokens, Want::Nothing));
    LILY_TRY(auto snapshot, backend.snapshot(*sequence));
    contexts.push_back(std::move(snapshot));
  }
  return contexts;
}

// The tokens fed are drawn, not sampled, so that routing spreads as it does over real text; the head still runs.
Result<double> time_decode(Backend& backend, const SpeedPlan& plan,
                           const std::vector<std::shared_ptr<const Snapshot>>& contexts, std::int64_t context) {
  const std::size_t batch = contexts.size();
  const auto steps = static_cast<std::size_t>(plan.decode_steps) + 1;
  const auto fed = random_tokens(batch * steps, plan.n_tokens, 7777);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (const auto& snapshot : contexts) {
    LILY_TRY(auto sequence, backend.restore(*snapshot, context + plan.decode_steps + 1));
    sequences.push_back(std::move(sequence));
  }
  std::vector<StepItem> items(batch);
  auto start = Clock::now();
  for (std::size_t step = 0; step < steps; ++step) {
    if (step == 1) start = Clock::now();  // the first step copies what it shares with the snapshot
    for (std::size_t i = 0; i < batch; ++i) {
      items[i] = {.sequence = sequences[i].get(), .tokens = {&fed[step * batch + i], 1}, .want = Want::Greedy};
    }
    LILY_TRY_VOID(backend.step(items));
    for (const StepItem& item : items) {
      if (item.greedy < 0) return fail(ErrorCode::Internal, "the logits hold NaN; nothing was measured");
    }
  }
  return seconds_since(start);
}

// Keeps the moment of the first token; the future is ready when the request has ended.
class FirstTokenSink : public EventSink {
 public:
  void on_token(TokenId) override {
    if (!seen_) first_ = Clock::now();
    seen_ = true;
  }
  void on_finish(const Finish& finish) override { finished_.set_value(finish); }

  Result<Clock::time_point> wait() {
    const Finish finish = finished_.get_future().get();
    if (finish.error) return tl::unexpected<Error>(*finish.error);
    if (!seen_) return Clock::now();  // the first token was a stop token, which is not passed on
    return first_;
  }

 private:
  bool seen_ = false;
  Clock::time_point first_;
  std::promise<Finish> finished_;
};

}  // namespace

Result<PrefillRow> measure_prefill(Backend& backend, const SpeedPlan& plan, std::int64_t tokens) {
  LILY_TRY_VOID(time_prefill(backend, plan, std::min(tokens, kWarmUpTokens)));
  plan.on_run();
  std::vector<double> seconds;
  for (int i = 0; i < plan.repeats; ++i) {
    LILY_TRY(const double run, time_prefill(backend, plan, tokens));
    seconds.push_back(run);
    plan.on_run();
  }
  return PrefillRow{.tokens = tokens, .seconds = spread_of(std::move(seconds))};
}

Result<DecodeRow> measure_decode(Backend& backend, const SpeedPlan& plan, std::int64_t context, int batch) {
  LILY_TRY(const auto contexts, make_contexts(backend, plan, context, batch));
  std::vector<double> seconds;
  for (int i = 0; i <= plan.repeats; ++i) {
    LILY_TRY(const double run, time_decode(backend, plan, contexts, context));
    if (i > 0) seconds.push_back(run);
    plan.on_run();
  }
  return DecodeRow{
      .context = context, .batch = batch, .steps = plan.decode_steps, .seconds = spread_of(std::move(seconds))};
}

Result<PrefillRow> measure_first_token(Engine& engine, const SpeedPlan& plan, std::int64_t tokens) {
  std::vector<double> seconds;
  for (int i = 0; i <= plan.repeats; ++i) {
    Request request{.prompt = random_tokens(static_cast<std::size_t>(tokens), plan.n_tokens, 0), .max_tokens = 1};
    const auto sink = std::make_shared<FirstTokenSink>();
    const auto start = Clock::now();
    LILY_TRY_VOID(engine.submit(std::move(request), sink));
    LILY_TRY(const Clock::time_point first, sink->wait());
    if (i > 0) seconds.push_back(std::chrono::duration<double>(first - start).count());
    plan.on_run();
  }
  return PrefillRow{.tokens = tokens, .seconds = spread_of(std::move(seconds))};
}

}  // namespace lily::apps
