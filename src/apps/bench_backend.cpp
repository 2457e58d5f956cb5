#include "apps/bench_backend.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>

#include "api/loaded_model.h"
#include "base/progress.h"

namespace lily::apps {

Result<BenchModel> open_model(const ModelOptions& options) {
  if (options.model.empty()) {
    std::fprintf(stderr, "lily: no --model given, so this measures the tiny model inside the program\n");
  }
  LILY_TRY(Checkpoint checkpoint,
           options.model.empty() ? Checkpoint::open_embedded() : Checkpoint::open(options.model));
  LILY_TRY(Tokenizer tokenizer, Tokenizer::load(checkpoint.texts().tokenizer_json));
  return BenchModel{std::make_unique<Checkpoint>(std::move(checkpoint)), std::move(tokenizer)};
}

Result<TimedBackend> open_backend(const BenchModel& model, const ModelOptions& options) {
  Progress progress("loading", model.checkpoint->text_bytes());
  api::LoadOptions load;
  load.device = options.device;
  load.n_threads = options.threads;
  load.activations = options.activations;
  load.progress = [&](std::size_t done, std::size_t) { progress.set(done); };
  const auto start = std::chrono::steady_clock::now();
  LILY_TRY(auto backend, api::make_backend(load, *model.checkpoint, model.tokenizer.size()));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return TimedBackend{std::move(backend), elapsed.count()};
}

Result<TokenId> run_tokens(Backend& backend, Sequence& sequence, std::span<const TokenId> tokens, Want want) {
  const auto most = static_cast<std::size_t>(backend.max_batch_tokens());
  TokenId greedy = 0;
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t count = std::min(most, tokens.size() - done);
    const bool last = done + count == tokens.size();
    StepItem item{.sequence = &sequence, .tokens = tokens.subspan(done, count), .want = last ? want : Want::Nothing};
    LILY_TRY_VOID(backend.step({&item, 1}));
    if (last && want == Want::Greedy) {
      if (item.greedy < 0) return fail(ErrorCode::Internal, "the logits hold NaN; nothing was measured");
      greedy = item.greedy;
    }
    done += count;
  }
  return greedy;
}

std::vector<TokenId> random_tokens(std::size_t count, TokenId n_tokens, std::uint64_t stream) {
  std::mt19937_64 generator(0x6c696c79 + stream);
  std::vector<TokenId> tokens(count);
  // Remainder instead of a distribution: those differ between standard libraries.
  for (TokenId& id : tokens) id = static_cast<TokenId>(generator() % static_cast<std::uint64_t>(n_tokens));
  return tokens;
}

json::Object model_json(const BenchModel& model) {
  return {{"id", model.checkpoint->id()},
          {"shape", model.checkpoint->shape().name},
          {"fingerprint", model.checkpoint->fingerprint()},
          {"checkpoint_bytes", model.checkpoint->text_bytes()}};
}

json::Object backend_json(const Backend& backend) {
  return {{"name", backend.name()},
          {"description", backend.description()},
          {"weight_bytes", backend.weight_bytes()},
          {"max_batch_tokens", backend.max_batch_tokens()}};
}

}  // namespace lily::apps
