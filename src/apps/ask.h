// Common to the commands that talk to a model: bringing it up, and one request from prompt to finished text.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/loaded_model.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/json.h"
#include "text/output_parser.h"

namespace lily::apps {

// Loads with a progress bar; says on standard error when the model is the one inside the program.
Result<api::LoadedModel> load(const ModelOptions& model, const CacheOptions& cache);

// "lily: MESSAGE" on standard error; returns the exit code of a failure.
int report(const Error& error);

// A whole text file, or standard input for "-". Errors: NotFound, Io, InvalidArgument (over 64 MB).
Result<std::string> read_text(const std::string& path);

struct AskOptions {
  bool raw = false;       // show every ordinary token as text, look for no thoughts
  bool thinking = false;  // the prompt ends inside a think block
  json::Array tools;      // those of the prompt; without any, calls stay text
  // Text as it comes, on the caller's thread; either part may be empty.
  std::function<void(std::string_view reasoning, std::string_view content)> on_text;
};

struct Reply {
  std::string reasoning, content;
  std::vector<ParsedToolCall> tool_calls;
  std::vector<TokenId> tokens;  // as generated, without the stop token
  std::int64_t reasoning_tokens = 0;
  double first_token_seconds = 0;  // from submission; 0 if no token came
  Finish finish;
};

// Runs one request to its end on the engine; Ctrl-C (InterruptGuard) cancels it and the Reply says Cancelled.
// Errors: those of Engine::submit, and of a request that failed on the way.
Result<Reply> ask(const api::LoadedModel& model, Request request, const AskOptions& options);

// Renders and encodes a conversation with its generation prompt; stop ids are the checkpoint's.
Result<Request> make_request(const api::LoadedModel& model, const std::vector<ChatMessage>& messages,
                             const json::Array& tools, bool thinking, std::int64_t max_tokens);

json::Object usage_json(const Reply& reply);  // as in the OpenAI API
json::Object timings_json(const Reply& reply, double load_seconds);
std::string stats_line(const Reply& reply);

}  // namespace lily::apps
