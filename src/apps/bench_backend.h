// A bare backend for the instruments, which time and compare backends without an engine around them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "apps/commands.h"
#include "backend/backend.h"
#include "base/error.h"
#include "base/json.h"
#include "model/checkpoint.h"
#include "text/tokenizer.h"

namespace lily::apps {

struct BenchModel {
  std::unique_ptr<Checkpoint> checkpoint;
  Tokenizer tokenizer;
};

Result<BenchModel> open_model(const ModelOptions& options);

struct TimedBackend {
  std::unique_ptr<Backend> backend;
  double load_seconds = 0;  // weights read and repacked
};

Result<TimedBackend> open_backend(const BenchModel& model, const ModelOptions& options);

// Runs tokens through a sequence in as few steps as the backend takes them; `want` is for the last token. Returns the
// greedy token, or 0 where none is wanted. Errors: those of step(), and Internal for logits that are not numbers.
Result<TokenId> run_tokens(Backend& backend, Sequence& sequence, std::span<const TokenId> tokens, Want want);

// The same ids on every run and machine; different streams are unrelated.
std::vector<TokenId> random_tokens(std::size_t count, TokenId n_tokens, std::uint64_t stream);

json::Object model_json(const BenchModel& model);
json::Object backend_json(const Backend& backend);

}  // namespace lily::apps
