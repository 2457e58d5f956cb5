#include "apps/ask.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "apps/terminal.h"
#include "base/progress.h"

namespace lily::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
constexpr auto kInterruptPoll = std::chrono::milliseconds(25);  // how long Ctrl-C may wait to be seen

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Carries events from the engine's thread to the one that writes, so that a slow terminal never holds up the engine.
class EventQueue : public EventSink {
 public:
  void on_token(TokenId id) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(id);
    changed_.notify_one();
  }
  void on_finish(const Finish& finish) override {
    const std::lock_guard lock(mutex_);
    finish_ = finish;
    changed_.notify_one();
  }

  // Tokens since the last call, waiting a moment for some. The Finish comes once all tokens have been taken.
  std::optional<Finish> take(std::vector<TokenId>& tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kInterruptPoll, [&] { return !tokens_.empty() || finish_.has_value(); });
    tokens.clear();
    tokens.swap(tokens_);
    return tokens.empty() ? finish_ : std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  std::optional<Finish> finish_;
};

// Token ids to reasoning and content, for chat and for raw text alike.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const AskOptions& options)
      : raw_(options.raw), detokenizer_(tokenizer), parser_(tokenizer, options.thinking, options.tools) {}

  OutputDelta push(TokenId id) {
    if (!raw_) return parser_.push(id);
    OutputDelta delta;
    delta.content = detokenizer_.push(id);
    return delta;
  }
  OutputDelta finish() {
    if (!raw_) return parser_.finish();
    OutputDelta delta;
    delta.content = detokenizer_.finish();
    return delta;
  }
  std::int64_t reasoning_tokens() const { return raw_ ? 0 : parser_.reasoning_tokens(); }

 private:
  bool raw_;
  Detokenizer detokenizer_;
  OutputParser parser_;
};

double per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace

Result<api::LoadedModel> load(const ModelOptions& model, const CacheOptions& cache) {
  api::LoadOptions options;
  options.directory = model.model;
  options.device = model.device;
  options.n_threads = model.threads;
  options.activations = model.activations;
  options.max_seq = model.max_seq;
  options.engine.cache_states = cache.states;
  options.engine.cache_bytes = cache.bytes;
  options.engine.cache_directory = cache.directory;
  if (model.model.empty()) {
    std::fprintf(stderr, "lily: no --model given, so this is the tiny model inside the program (a toy: expect toys)\n");
  }
  std::mutex mutex;
  std::optional<Progress> progress;
  options.progress = [&](std::size_t done, std::size_t total) {
    const std::lock_guard lock(mutex);
    if (!progress) progress.emplace("loading", total);
    progress->set(done);
  };
  return api::load_model(options);
}

int report(const Error& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "lily: %s\n", error.message.c_str());
  return error.code == ErrorCode::Cancelled ? kExitInterrupted : kExitFailed;
}

Result<std::string> read_text(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return fail(ErrorCode::NotFound, "cannot open '{}': {}", path, std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  std::size_t count;
  while (text.size() <= kMaxTextBytes && (count = std::fread(buffer, 1, sizeof buffer, file)) > 0) {
    text.append(buffer, count);
  }
  const int error = std::ferror(file) ? errno : 0;
  if (file != stdin) std::fclose(file);
  if (error != 0) return fail(ErrorCode::Io, "cannot read '{}': {}", path, std::strerror(error));
  if (text.size() > kMaxTextBytes) return fail(ErrorCode::InvalidArgument, "'{}' has more than 64 MB of text", path);
  return text;
}

Result<Reply> ask(const api::LoadedModel& model, Request request, const AskOptions& options) {
  const auto sink = std::make_shared<EventQueue>();
  TextStream stream(model.tokenizer, options);
  Reply reply;
  const auto emit = [&](OutputDelta delta) {
    reply.reasoning += delta.reasoning;
    reply.content += delta.content;
    for (ParsedToolCall& call : delta.tool_calls) reply.tool_calls.push_back(std::move(call));
    const bool any = !delta.reasoning.empty() || !delta.content.empty();
    if (any && options.on_text) options.on_text(delta.reasoning, delta.content);
  };

  const auto start = Clock::now();
  LILY_TRY(const RequestId id, model.engine->submit(std::move(request), sink));
  bool cancelled = false;
  std::vector<TokenId> tokens;
  std::optional<Finish> finish;
  while (!(finish = sink->take(tokens))) {
    if (!tokens.empty() && reply.first_token_seconds == 0) reply.first_token_seconds = seconds_since(start);
    for (const TokenId token : tokens) {
      if (cancelled) break;
      reply.tokens.push_back(token);
      emit(stream.push(token));
    }
    if (InterruptGuard::interrupted() && !cancelled) {
      cancelled = true;
      model.engine->cancel(id);
    }
  }
  emit(stream.finish());
  reply.reasoning_tokens = stream.reasoning_tokens();
  reply.finish = *finish;
  if (finish->reason == FinishReason::Error) {
    return tl::unexpected<Error>(finish->error.value_or(Error{ErrorCode::Internal, "the engine failed"}));
  }
  return reply;
}

Result<Request> make_request(const api::LoadedModel& model, const std::vector<ChatMessage>& messages,
                             const json::Array& tools, bool thinking, std::int64_t max_tokens) {
  ChatOptions options;
  options.enable_thinking = thinking;
  LILY_TRY(const RenderedPrompt rendered, model.chat_template.render(messages, tools, options));
  EncodedPrompt encoded = encode(rendered, model.tokenizer);
  Request request;
  request.prompt = std::move(encoded.tokens);
  request.boundaries = std::move(encoded.boundaries);
  request.max_tokens = max_tokens;
  request.stop_ids = model.stop_ids();
  return request;
}

json::Object usage_json(const Reply& reply) {
  const Usage& usage = reply.finish.usage;
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", reply.reasoning_tokens}}}};
}

json::Object timings_json(const Reply& reply, double load_seconds) {
  const Usage& usage = reply.finish.usage;
  return {{"load_seconds", load_seconds},
          {"queue_seconds", usage.queue_seconds},
          {"prefill_seconds", usage.prefill_seconds},
          {"decode_seconds", usage.decode_seconds},
          {"first_token_seconds", reply.first_token_seconds},
          {"prefill_tokens_per_second", per_second(usage.prompt_tokens - usage.cached_tokens, usage.prefill_seconds)},
          {"decode_tokens_per_second", per_second(usage.completion_tokens, usage.decode_seconds)}};
}

std::string stats_line(const Reply& reply) {
  const Usage& usage = reply.finish.usage;
  return fmt::format("{} prompt tokens ({} cached), {} generated at {:.1f} a second, first after {:.2f} s",
                     usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens,
                     per_second(usage.completion_tokens, usage.decode_seconds), reply.first_token_seconds);
}

}  // namespace lily::apps
