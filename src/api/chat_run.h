// One chat answer being written: receives tokens on the engine's thread, splits them into reasoning, content and tool
// calls, stops where the client asked to, and answers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/call.h"
#include "api/chat_request.h"
#include "api/stop_matcher.h"
#include "engine/engine.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace lily::api {

// What is served. The pointers outlive the engine's last event.
struct ServedModel {
  std::string id;
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;
  Engine* engine = nullptr;
  std::vector<TokenId> stop_ids;
  std::string fingerprint;   // of program and checkpoint, for system_fingerprint
  std::int64_t created = 0;  // Unix time
};

class ChatRun final : public EventSink {
 public:
  ChatRun(std::shared_ptr<const ServedModel> model, const ChatRequest& request, std::shared_ptr<Call> call);

  void on_token(TokenId id) override;
  void on_finish(const Finish& finish) override;

  // The engine's name for this run, once submit() has given it; cancel() before that takes effect here.
  void submitted(RequestId id);
  void cancel();  // any thread

 private:
  void absorb(OutputDelta delta);
  void end_early();
  json::Object message() const;
  json::Object usage(const Finish& finish) const;
  std::string finish_reason(const Finish& finish) const;
  net::Response answer(const Finish& finish) const;

  const std::shared_ptr<const ServedModel> model_;
  const bool parallel_tool_calls_;
  const std::vector<std::string> ignored_fields_;
  const StopMatcher stops_;
  OutputParser parser_;
  std::shared_ptr<Call> call_;

  std::string reasoning_;
  std::string content_;
  std::vector<ParsedToolCall> tool_calls_;
  std::int64_t n_tokens_ = 0;
  bool ended_early_ = false;  // by a stop string or after the only tool call wanted
  bool failed_ = false;       // out of memory while collecting

  std::mutex mutex_;
  std::optional<RequestId> id_;
  bool cancelled_ = false;
};

}  // namespace lily::api
