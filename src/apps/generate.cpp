// `lily generate`: one prompt, one answer on standard output, the rest on standard error.
#include <cstdio>
#include <cstring>
#include <string>

#include "apps/ask.h"
#include "apps/commands.h"
#include "apps/terminal.h"

namespace lily::apps {
namespace {

// The prompt from where it was given. Chat prompts lose the newline that editors and echo put at the end.
Result<std::string> find_prompt(const GenerateOptions& options) {
  std::string prompt = options.prompt;
  if (prompt.empty()) {
    const bool from_stdin = options.file.empty() || options.file == "-";
    if (from_stdin && is_terminal(stdin)) std::fprintf(stderr, "lily: type the prompt, then Ctrl-D\n");
    LILY_TRY(prompt, read_text(from_stdin ? "-" : options.file));
    if (!options.raw && prompt.ends_with('\n')) prompt.pop_back();
  }
  if (prompt.empty()) return fail(ErrorCode::InvalidArgument, "the prompt is empty; see 'lily generate --help'");
  return prompt;
}

Result<Request> build_request(const GenerateOptions& options, const api::LoadedModel& model,
                              const std::string& prompt) {
  if (!options.raw) {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({.role = Role::System, .content = options.system});
    messages.push_back({.role = Role::User, .content = prompt});
    return make_request(model, messages, {}, options.thinking, options.max_tokens);
  }
  Request request;
  model.tokenizer.encode(prompt, request.prompt);
  request.max_tokens = options.max_tokens;
  request.stop_ids = model.stop_ids();
  return request;
}

// Writes the answer as it comes: thoughts dimmed on standard error, content on standard output.
class AnswerWriter {
 public:
  void write(std::string_view reasoning, std::string_view content) {
    if (!reasoning.empty()) put(stderr, error_style_.dim, reasoning, error_style_.reset);
    if (content.empty()) return;
    if (!content_begun_ && reasoning_begun_) std::fputc('\n', stderr);
    content_begun_ = true;
    put(stdout, "", content, "");
    ends_line_ = content.ends_with('\n');
  }
  // False when standard output took no more (a full disk, say).
  bool finish() {
    if (!ends_line_) std::fputc('\n', stdout);
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  }

 private:
  void put(std::FILE* stream, std::string_view before, std::string_view text, std::string_view after) {
    if (stream == stderr) reasoning_begun_ = true;
    const std::string safe = is_terminal(stream) ? without_controls(text) : std::string(text);
    for (const std::string_view part : {before, std::string_view(safe), after}) {
      std::fwrite(part.data(), 1, part.size(), stream);
    }
    std::fflush(stream);
  }

  Style error_style_ = style_for(stderr);
  bool reasoning_begun_ = false, content_begun_ = false, ends_line_ = false;
};

std::string result_json(const api::LoadedModel& model, const Reply& reply) {
  return json::dump(json::Object{{"model", model.id()},
                                 {"text", reply.content},
                                 {"reasoning", reply.reasoning},
                                 {"finish_reason", finish_name(reply.finish.reason)},
                                 {"usage", usage_json(reply)},
                                 {"timings", timings_json(reply, model.load_seconds)}});
}

}  // namespace

int run_generate(const GenerateOptions& options) {
  const auto prompt = find_prompt(options);
  if (!prompt) return report(prompt.error());
  const auto model = load(options.model, CacheOptions{.bytes = 0});
  if (!model) return report(model.error());
  auto request = build_request(options, *model, *prompt);
  if (!request) return report(request.error());

  const InterruptGuard guard;
  AnswerWriter writer;
  AskOptions ask_options{.raw = options.raw, .thinking = options.thinking};
  if (!options.json) ask_options.on_text = [&](auto reasoning, auto content) { writer.write(reasoning, content); };
  const auto reply = ask(*model, std::move(*request), ask_options);
  if (!reply) return report(reply.error());
  if (options.json) writer.write("", result_json(*model, *reply));
  if (!writer.finish()) return report({ErrorCode::Io, "standard output could not be written"});
  return reply->finish.reason == FinishReason::Cancelled ? kExitInterrupted : kExitOk;
}

}  // namespace lily::apps
