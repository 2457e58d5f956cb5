#include "api/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lily::api {
namespace {

constexpr std::int64_t kDefaultMaxSeq = 32768;

Result<std::int64_t> resolve_max_seq(const LoadOptions& options, std::int64_t max_positions) {
  const std::int64_t wanted = options.max_seq;
  if (wanted == 0) return std::min(kDefaultMaxSeq, max_positions);
  if (wanted < 2)
    return fail(ErrorCode::InvalidArgument, "--max-seq {} is too small: a prompt and an answer need 2", wanted);
  if (wanted > max_positions) {
    return fail(ErrorCode::InvalidArgument,
                "--max-seq {} is more than this checkpoint was made for (max_position_embeddings {}); use at most that",
                wanted, max_positions);
  }
  return wanted;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const LoadOptions& options, const Checkpoint& checkpoint,
                                              TokenId n_tokens) {
  BackendOptions backend;
  backend.n_threads = options.n_threads;
  backend.n_tokens = n_tokens;
  backend.activations = options.activations;
  backend.progress = options.progress;
  if (options.device == "cpu" || options.device == "auto") return make_cpu_backend(checkpoint, backend);
  if (options.device == "reference") return make_reference_backend(checkpoint, backend);
  return fail(ErrorCode::InvalidArgument, "unknown device '{}'; this build has: cpu, reference", options.device);
}

Result<LoadedModel> load_model(const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  LILY_TRY(Checkpoint opened,
           options.directory.empty() ? Checkpoint::open_embedded() : Checkpoint::open(options.directory));
  auto checkpoint = std::make_unique<Checkpoint>(std::move(opened));
  LILY_TRY(const std::int64_t max_seq, resolve_max_seq(options, checkpoint->max_positions()));
  LILY_TRY(Tokenizer tokenizer,
           Tokenizer::load(checkpoint->texts().tokenizer_json, checkpoint->texts().tokenizer_config));
  LILY_TRY(ChatTemplate chat_template, ChatTemplate::load(checkpoint->texts().chat_template));
  LILY_TRY(std::unique_ptr<Backend> backend, make_backend(options, *checkpoint, tokenizer.size()));
  EngineOptions engine_options = options.engine;
  engine_options.max_seq = max_seq;
  engine_options.fingerprint = checkpoint->fingerprint();
  LILY_TRY(std::unique_ptr<Engine> engine, Engine::create(std::move(backend), std::move(engine_options)));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return LoadedModel{std::move(checkpoint), std::move(tokenizer), std::move(chat_template), std::move(engine),
                     elapsed.count()};
}

}  // namespace lily::api
