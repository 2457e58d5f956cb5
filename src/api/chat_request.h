// The body of POST /v1/chat/completions, validated. Every refusal names the field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/errors.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace lily::api {

struct ChatRules {
  std::string model_id;  // what is served
  bool strict = false;   // unknown fields are 400 instead of a warning; late system messages are refused
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  json::Array tools;  // as the client wrote them; empty with tool_choice "none"
  bool parallel_tool_calls = true;
  bool thinking = false;
  bool preserve_thinking = false;
  std::int64_t max_tokens = -1;   // -1: as many as fit
  std::vector<std::string> stop;  // non-empty strings
  std::string cache_key;
  bool use_cache = true;
  std::vector<std::string> ignored;  // unknown fields, for the warning
};

Parsed<ChatRequest> parse_chat_request(const json::Value& body, const ChatRules& rules);

// messages of a request; unknown keys are added to `ignored`.
Parsed<std::vector<ChatMessage>> parse_messages(const json::Value& value, std::vector<std::string>& ignored);

// Names by which clients may ask for the model: its id, "lily", "default", or nothing.
bool serves_model(const ChatRules& rules, std::string_view name);

}  // namespace lily::api
