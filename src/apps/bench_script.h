// The conversations of `lily bench --suite cache`: what users, tools and their results say.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"

namespace lily::apps::script {

extern const std::string_view kSystem;
extern const std::array<std::string_view, 10> kChatTurns;
extern const std::string_view kTask;  // the one user message of the tool loop

struct ToolStep {
  ToolCall call;  // stands in where the model makes none of its own
  std::string result;
};

json::Array tools();                        // definitions, as a client sends them
const std::vector<ToolStep>& tool_steps();  // twelve

}  // namespace lily::apps::script
