#include "api/chat_run.h"

#include <ctime>
#include <exception>
#include <utility>

#include "api/errors.h"
#include "base/log.h"

namespace lily::api {
namespace {

// Names of unknown fields for a header: only what a field name usually consists of.
std::string warning(const std::vector<std::string>& ignored) {
  std::string text = "ignored unknown fields:";
  for (const std::string& name : ignored) {
    text += text.ends_with(':') ? " " : ", ";
    for (const char c : name.substr(0, 64)) {
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                         c == '-' || c == '.' || c == '[' || c == ']';
      text.push_back(plain ? c : '?');
    }
  }
  return text;
}

}  // namespace

ChatRun::ChatRun(std::shared_ptr<const ServedModel> model, const ChatRequest& request, std::shared_ptr<Call> call)
    : model_(std::move(model)),
      parallel_tool_calls_(request.parallel_tool_calls),
      ignored_fields_(request.ignored),
      stops_(request.stop),
      parser_(*model_->tokenizer, request.thinking, request.tools),
      call_(std::move(call)) {}

void ChatRun::on_token(TokenId id) {
  if (ended_early_ || failed_) return;
  try {
    ++n_tokens_;
    absorb(parser_.push(id));
  } catch (const std::exception& e) {
    log::error("{}: {}", call_->id(), e.what());
    failed_ = true;
    cancel();
  }
}

void ChatRun::absorb(OutputDelta delta) {
  reasoning_ += delta.reasoning;
  const std::size_t old_size = content_.size();
  content_ += delta.content;
  if (const auto end = stops_.find(content_, old_size)) {
    content_.resize(*end);
    end_early();
    return;
  }
  for (ParsedToolCall& call : delta.tool_calls) {
    tool_calls_.push_back(std::move(call));
    if (!parallel_tool_calls_) {
      end_early();
      return;
    }
  }
}

void ChatRun::end_early() {
  ended_early_ = true;
  cancel();
}

void ChatRun::submitted(RequestId id) {
  const std::lock_guard lock(mutex_);
  id_ = id;
  if (cancelled_) model_->engine->cancel(id);
}

void ChatRun::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (id_) model_->engine->cancel(*id_);
}

void ChatRun::on_finish(const Finish& finish) {
  try {
    if (!ended_early_ && !failed_) absorb(parser_.finish());
    net::Response response = answer(finish);
    call_->finish(std::move(response), fmt::format("prompt={} cached={} completion={} {}", finish.usage.prompt_tokens,
                                                   finish.usage.cached_tokens, n_tokens_, finish_reason(finish)));
  } catch (const std::exception& e) {  // dropping the call answers 500
    log::error("{}: {}", call_->id(), e.what());
  }
  call_.reset();
}

net::Response ChatRun::answer(const Finish& finish) const {
  if (failed_) return error_response({503, "out_of_memory", "", "the machine ran out of memory for this answer"});
  if (finish.reason == FinishReason::Error) {
    return error_response(to_api_error(finish.error.value_or(Error{ErrorCode::Internal, "the engine failed"})));
  }
  if (finish.reason == FinishReason::Cancelled && !ended_early_)
    return error_response({503, "cancelled", "", "the server stopped before the answer was complete; try again"});
  const json::Object choice{
      {"index", 0}, {"message", message()}, {"logprobs", nullptr}, {"finish_reason", finish_reason(finish)}};
  const json::Object body{{"id", unique_id("chatcmpl-")},
                          {"object", "chat.completion"},
                          {"created", static_cast<std::int64_t>(std::time(nullptr))},
                          {"model", model_->id},
                          {"system_fingerprint", model_->fingerprint},
                          {"choices", json::Array{choice}},
                          {"usage", usage(finish)}};
  net::Response response = json_response(200, body);
  if (!ignored_fields_.empty()) response.headers.push_back({"X-Lily-Warning", warning(ignored_fields_)});
  return response;
}

json::Object ChatRun::message() const {
  const bool only_other = content_.empty() && (!tool_calls_.empty() || !reasoning_.empty());
  json::Object message{{"role", "assistant"},
                       {"content", only_other ? json::Value(nullptr) : json::Value(content_)},
                       {"refusal", nullptr}};
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  if (tool_calls_.empty()) return message;
  json::Array calls;
  for (const ParsedToolCall& call : tool_calls_) {
    calls.push_back(json::Object{{"id", unique_id("call_")},
                                 {"type", "function"},
                                 {"function", json::Object{{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

std::string ChatRun::finish_reason(const Finish& finish) const {
  if (ended_early_) return tool_calls_.empty() ? "stop" : "tool_calls";
  switch (finish.reason) {
    case FinishReason::Length:
      return "length";  // also with tool calls: the turn may be incomplete
    case FinishReason::Stop:
      return tool_calls_.empty() ? "stop" : "tool_calls";
    case FinishReason::Cancelled:
      return "cancelled";
    default:
      return "error";
  }
}

json::Object ChatRun::usage(const Finish& finish) const {
  return {{"prompt_tokens", finish.usage.prompt_tokens},
          {"completion_tokens", n_tokens_},
          {"total_tokens", finish.usage.prompt_tokens + n_tokens_},
          {"prompt_tokens_details", json::Object{{"cached_tokens", finish.usage.cached_tokens}}},
          {"completion_tokens_details", json::Object{{"reasoning_tokens", parser_.reasoning_tokens()}}}};
}

}  // namespace lily::api
