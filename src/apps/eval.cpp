// `lily eval`: how faithful the logits are. Runs a text through one backend, teacher-forced, and compares every
// position with a second backend or with saved logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "apps/ask.h"
#include "apps/bench_backend.h"
#include "apps/bench_record.h"
#include "apps/commands.h"
#include "apps/eval_logits.h"
#include "apps/eval_metrics.h"
#include "apps/eval_text.h"
#include "base/progress.h"

namespace lily::apps {
namespace {

// Logits are taken in pieces of at most so many bytes: a row of the large vocabulary is a megabyte.
constexpr std::size_t kPieceBytes = std::size_t{64} << 20;

// Where reference logits come from: a second backend, a file, or nowhere.
struct Reference {
  std::optional<TimedBackend> backend;
  std::optional<SavedLogits> saved;
  bool any() const { return backend || saved; }
};

struct Outcome {
  Perplexity own, reference;
  Comparison comparison;
};

Result<Windows> text_windows(const EvalOptions& options, const Tokenizer& tokenizer) {
  std::string text(kEvalText);
  if (!options.text.empty()) {
    LILY_TRY(text, read_text(options.text));
  }
  std::vector<TokenId> tokens;
  tokenizer.encode(text, tokens);
  const auto context = static_cast<std::size_t>(options.context);
  // A window of n tokens judges n - 1 predictions.
  Windows windows;
  auto left = static_cast<std::size_t>(options.tokens);
  for (std::size_t at = 0; at + 1 < tokens.size() && left > 0;) {
    const std::size_t count = std::min({context, tokens.size() - at, left + 1});
    if (count < 2) break;
    windows.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                         tokens.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    left -= count - 1;
  }
  if (windows.empty()) return fail(ErrorCode::InvalidArgument, "the text has fewer than two tokens");
  return windows;
}

// "cpu:int8" as options for a second backend on the same model.
ModelOptions against_options(const EvalOptions& options) {
  ModelOptions other = options.model;
  const std::size_t colon = options.against.find(':');
  other.device = options.against.substr(0, colon);
  other.activations = colon == std::string::npos ? "" : options.against.substr(colon + 1);
  return other;
}

class Evaluation {
 public:
  Evaluation(Backend& backend, TokenId n_tokens, const Reference& reference, LogitsWriter* writer, Progress& progress)
      : backend_(backend), n_tokens_(n_tokens), reference_(reference), writer_(writer), progress_(progress) {
    const auto vocab = static_cast<std::size_t>(backend.shape().vocab);
    piece_ = std::clamp(kPieceBytes / (vocab * sizeof(float)), std::size_t{1},
                        static_cast<std::size_t>(backend.max_batch_tokens()));
    if (reference.backend) {
      piece_ = std::min(piece_, static_cast<std::size_t>(reference.backend->backend->max_batch_tokens()));
    }
    own_.resize(piece_ * vocab);
    if (reference.any()) other_.resize(piece_ * vocab);
  }

  Result<Outcome> run(const Windows& windows) {
    for (const auto& window : windows) LILY_TRY_VOID(run_window(window));
    return std::move(outcome_);
  }

 private:
  Result<void> run_window(const std::vector<TokenId>& window) {
    LILY_TRY(const auto sequence, backend_.create(static_cast<std::int64_t>(window.size())));
    std::unique_ptr<Sequence> other;
    if (reference_.backend) {
      LILY_TRY(other, reference_.backend->backend->create(static_cast<std::int64_t>(window.size())));
    }
    for (std::size_t at = 0; at < window.size(); at += piece_) {
      const auto tokens = std::span(window).subspan(at, std::min(piece_, window.size() - at));
      LILY_TRY_VOID(step(backend_, *sequence, tokens, own_));
      if (std::any_of(own_.begin(), own_.end(), [](float logit) { return std::isnan(logit); })) {
        return fail(ErrorCode::Internal, "logits are not numbers after token {} of the text", rows_done_);
      }
      if (other) LILY_TRY_VOID(step(*reference_.backend->backend, *other, tokens, other_));
      if (reference_.saved) read_saved(tokens.size());
      if (writer_ != nullptr) LILY_TRY_VOID(writer_->add(std::span(own_).first(tokens.size() * vocab())));
      judge(window, at, tokens.size());
      rows_done_ += static_cast<std::int64_t>(tokens.size());
      progress_.set(static_cast<std::uint64_t>(rows_done_));
    }
    return {};
  }

  Result<void> step(Backend& backend, Sequence& sequence, std::span<const TokenId> tokens, std::vector<float>& logits) {
    StepItem item{.sequence = &sequence,
                  .tokens = tokens,
                  .want = Want::AllLogits,
                  .logits = std::span(logits).first(tokens.size() * vocab())};
    return backend.step({&item, 1});
  }

  void read_saved(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto out = row(other_, i);
      reference_.saved->row(rows_done_ + static_cast<std::int64_t>(i), out);
      // Rows beyond the tokenizer are masked here; others keep them, so they are taken out of the comparison.
      std::fill(out.begin() + n_tokens_, out.end(), -std::numeric_limits<float>::infinity());
    }
  }

  void judge(const std::vector<TokenId>& window, std::size_t at, std::size_t count) {
    for (std::size_t i = 0; i < count && at + i + 1 < window.size(); ++i) {
      const TokenId next = window[at + i + 1];
      outcome_.own.add(row(own_, i), next);
      if (!reference_.any()) continue;
      outcome_.reference.add(row(other_, i), next);
      outcome_.comparison.add(rows_done_ + static_cast<std::int64_t>(i), row(other_, i), row(own_, i));
    }
  }

  std::size_t vocab() const { return static_cast<std::size_t>(backend_.shape().vocab); }
  std::span<float> row(std::vector<float>& rows, std::size_t i) const {
    return std::span(rows).subspan(i * vocab(), vocab());
  }

  Backend& backend_;
  const TokenId n_tokens_;
  const Reference& reference_;
  LogitsWriter* writer_;
  Progress& progress_;
  std::size_t piece_ = 1;
  std::vector<float> own_, other_;  // [piece, V]
  std::int64_t rows_done_ = 0;
  Outcome outcome_;
};

std::uint64_t count_tokens(const Windows& windows) {
  std::uint64_t count = 0;
  for (const auto& window : windows) count += window.size();
  return count;
}

json::Object perplexity_json(const Perplexity& perplexity) {
  return {{"perplexity", perplexity.value()}, {"nll", perplexity.mean_nll()}, {"positions", perplexity.count()}};
}

json::Object eval_record(const EvalOptions& options, const BenchModel& model, const Backend& backend,
                         const Reference& reference, const Outcome& outcome) {
  json::Object record = record_head("lily-eval/1", options.command);
  record["model"] = model_json(model);
  record["backend"] = backend_json(backend);
  record["text"] = options.text.empty() ? "built-in" : options.text;
  record["context"] = options.context;
  record["own"] = perplexity_json(outcome.own);
  if (!reference.any()) return record;
  json::Object against = perplexity_json(outcome.reference);
  against["source"] = reference.saved ? options.reference : options.against;
  if (reference.backend) against["backend"] = backend_json(*reference.backend->backend);
  record["reference"] = std::move(against);
  json::Object comparison = to_json(outcome.comparison);
  comparison["perplexity_ratio"] = outcome.own.value() / outcome.reference.value();
  record["comparison"] = std::move(comparison);
  return record;
}

void print_eval(const json::Object& record, const Outcome& outcome) {
  const auto& backend = record.at("backend").as_object();
  fmt::print("{} on {} ({}), {} positions in windows of {}\n",
             record.at("model").as_object().at("id").as_string().c_str(), backend.at("name").as_string().c_str(),
             backend.at("description").as_string().c_str(), outcome.own.count(),
             record.at("context").to_number<std::int64_t>());
  fmt::print("perplexity          {:.6f}\n", outcome.own.value());
  if (!record.contains("comparison")) return;
  const Comparison& c = outcome.comparison;
  fmt::print("  of the reference  {:.6f}  ({})\n", outcome.reference.value(),
             record.at("reference").as_object().at("source").as_string().c_str());
  fmt::print("  difference        {:+.4f} %\n", 100 * (outcome.own.value() / outcome.reference.value() - 1));
  fmt::print("top-1 agreement     {:.3f} %  ({} of {} positions differ; largest margin {:.4f})\n", 100 * c.agreement(),
             c.disagreements().size(), c.count(), c.largest_margin());
  fmt::print("KL                  {:.3e} mean, {:.3e} largest\n", c.mean_kl(), c.largest_kl());
  fmt::print("logits differ by    {:.4f} (root mean square, centred)\n", c.rms_difference());
}

Result<void> run(const EvalOptions& options) {
  LILY_TRY(const BenchModel model, open_model(options.model));
  const int vocab = model.checkpoint->shape().vocab;
  Reference reference;
  if (!options.reference.empty()) {
    LILY_TRY(reference.saved, SavedLogits::open(options.reference, vocab));
  }
  LILY_TRY(const Windows windows,
           reference.saved ? Result<Windows>(reference.saved->windows()) : text_windows(options, model.tokenizer));
  LILY_TRY(const TimedBackend timed, open_backend(model, options.model));
  if (!options.against.empty()) {
    LILY_TRY(reference.backend, open_backend(model, against_options(options)));
  }
  std::optional<LogitsWriter> writer;
  if (!options.save.empty()) {
    LILY_TRY(writer, LogitsWriter::create(options.save, windows, vocab));
  }
  Progress progress("evaluating", count_tokens(windows), Progress::Unit::Items);
  Evaluation evaluation(*timed.backend, model.tokenizer.size(), reference, writer ? &*writer : nullptr, progress);
  LILY_TRY(const Outcome outcome, evaluation.run(windows));
  progress.finish();
  if (writer) LILY_TRY_VOID(writer->finish());
  const json::Object record = eval_record(options, model, *timed.backend, reference, outcome);
  if (options.json != "-") print_eval(record, outcome);
  return write_record(record, options.json);
}

}  // namespace

int run_eval(const EvalOptions& options) {
  const auto done = run(options);
  return done ? kExitOk : report(done.error());
}

}  // namespace lily::apps
