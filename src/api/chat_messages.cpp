// messages: roles, text parts, tool calls of earlier turns.
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "api/chat_request.h"
#include "api/fields.h"

namespace lily::api {
namespace {

using json::Value;

constexpr std::size_t kLongestName = 256;

// Names go between angle brackets in the prompt, so they must not contain any.
bool usable_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '<' || c == '>';
  });
}

template <std::size_t N>
void note_unknown(const json::Object& object, const std::array<std::string_view, N>& known, const std::string& where,
                  std::vector<std::string>& ignored) {
  for (const auto& [key, value] : object) {
    if (std::find(known.begin(), known.end(), std::string_view(key)) == known.end() && ignored.size() < 16)
      ignored.push_back(fmt::format("{}.{}", where, std::string_view(key)));
  }
}

Parsed<Role> parse_role(const json::Object& message, const std::string& where) {
  const Value* role = find_value(message, "role");
  if (!role || !role->is_string()) return bad_field(where + ".role", "{}.role must be a string", where);
  const std::string_view name = role->get_string();
  if (name == "system" || name == "developer") return Role::System;
  if (name == "user") return Role::User;
  if (name == "assistant") return Role::Assistant;
  if (name == "tool") return Role::Tool;
  return bad_field(where + ".role", "{}.role is {}, must be system, developer, user, assistant or tool", where,
                   quote(name, 64));
}

Parsed<std::string_view> parse_part(const Value& part, const std::string& where) {
  if (!part.is_object()) return bad_field(where, "{} must be an object", where);
  const Value* type = find_value(part.get_object(), "type");
  if (!type || !type->is_string()) return bad_field(where + ".type", "{}.type must be a string", where);
  const std::string_view name = type->get_string();
  if (name != "text" && name != "input_text" && name != "output_text") {
    return bad_field(where + ".type", "{}.type is {}, which is not supported; the model reads text", where,
                     quote(name, 64));
  }
  const Value* text = find_value(part.get_object(), "text");
  if (!text || !text->is_string()) return bad_field(where + ".text", "{}.text must be a string", where);
  return std::string_view(text->get_string());
}

// A string, or text parts joined with nothing between. Absent is empty where the role allows it.
Parsed<std::string> parse_content(const json::Object& message, Role role, const std::string& where) {
  const Value* content = find_value(message, "content");
  if (!content) {
    if (role == Role::Assistant || role == Role::Tool) return std::string();
    return bad_field(where + ".content", "{}.content is missing", where);
  }
  if (content->is_string()) return std::string(content->get_string());
  if (!content->is_array())
    return bad_field(where + ".content", "{}.content must be a string or a list of text parts", where);
  std::string joined;
  std::size_t i = 0;
  for (const Value& part : content->get_array()) {
    API_TRY(const std::string_view text, parse_part(part, fmt::format("{}.content[{}]", where, i++)));
    joined += text;
  }
  return joined;
}

Parsed<json::Object> parse_arguments(const Value* arguments, const std::string& where) {
  if (!arguments) return json::Object();
  if (arguments->is_object()) return arguments->get_object();
  if (!arguments->is_string()) return bad_field(where, "{} must be a string with a JSON object", where);
  const std::string_view text = arguments->get_string();
  if (text.empty()) return json::Object();
  auto parsed = json::parse(text);
  if (!parsed) return bad_field(where, "{} is not JSON: {}", where, parsed.error().message);
  if (!parsed->is_object()) return bad_field(where, "{} must hold a JSON object", where);
  return std::move(parsed->get_object());
}

Parsed<ToolCall> parse_tool_call(const Value& value, const std::string& where, std::vector<std::string>& ignored) {
  if (!value.is_object()) return bad_field(where, "{} must be an object", where);
  const json::Object& call = value.get_object();
  note_unknown(call, std::array<std::string_view, 4>{"id", "type", "index", "function"}, where, ignored);
  if (const Value* type = find_value(call, "type"); type && *type != Value("function"))
    return bad_field(where + ".type", "{}.type must be \"function\"", where);
  if (const Value* id = find_value(call, "id"); id && !id->is_string())
    return bad_field(where + ".id", "{}.id must be a string", where);
  const Value* function = find_value(call, "function");
  if (!function || !function->is_object())
    return bad_field(where + ".function", "{}.function must be an object", where);
  const Value* name = find_value(function->get_object(), "name");
  if (!name || !name->is_string() || !usable_name(name->get_string())) {
    return bad_field(where + ".function.name",
                     "{}.function.name must be a string of 1 to {} bytes without control characters, '<' and '>'",
                     where, kLongestName);
  }
  API_TRY(json::Object arguments,
          parse_arguments(find_value(function->get_object(), "arguments"), where + ".function.arguments"));
  return ToolCall{std::string(name->get_string()), std::move(arguments)};
}

Parsed<std::vector<ToolCall>> parse_tool_calls(const Value& value, const std::string& where,
                                               std::vector<std::string>& ignored) {
  if (!value.is_array()) return bad_field(where, "{} must be a list", where);
  std::vector<ToolCall> calls;
  for (const Value& call : value.get_array()) {
    API_TRY(ToolCall parsed, parse_tool_call(call, fmt::format("{}[{}]", where, calls.size()), ignored));
    calls.push_back(std::move(parsed));
  }
  return calls;
}

// What only an assistant's turn has: reasoning and tool calls.
Parsed<void> parse_assistant(const json::Object& object, const std::string& where, ChatMessage& message,
                             std::vector<std::string>& ignored) {
  for (const std::string_view name : {"reasoning_content", "reasoning"}) {
    const Value* reasoning = find_value(object, name);
    if (!reasoning) continue;
    if (!reasoning->is_string())
      return bad_field(fmt::format("{}.{}", where, name), "{}.{} must be a string", where, name);
    if (!message.reasoning) message.reasoning = std::string(reasoning->get_string());
  }
  for (const std::string_view name : {"function_call", "audio", "refusal"}) {
    if (find_value(object, name))
      return bad_field(fmt::format("{}.{}", where, name), "{}.{} is not supported", where, name);
  }
  if (const Value* calls = find_value(object, "tool_calls")) {
    API_TRY(message.tool_calls, parse_tool_calls(*calls, where + ".tool_calls", ignored));
  }
  return {};
}

Parsed<ChatMessage> parse_message(const Value& value, const std::string& where, std::vector<std::string>& ignored) {
  if (!value.is_object()) return bad_field(where, "{} must be an object", where);
  const json::Object& object = value.get_object();
  API_TRY(const Role role, parse_role(object, where));
  API_TRY(std::string content, parse_content(object, role, where));
  ChatMessage message{role, std::move(content), std::nullopt, {}};
  constexpr std::array<std::string_view, 12> kKnown{"role",      "content",     "name",       "tool_call_id",
                                                    "id",        "annotations", "tool_calls", "reasoning_content",
                                                    "reasoning", "audio",       "refusal",    "function_call"};
  note_unknown(object, kKnown, where, ignored);
  for (const std::string_view name : {"name", "tool_call_id"}) {
    const Value* text = find_value(object, name);
    if (text && !text->is_string())
      return bad_field(fmt::format("{}.{}", where, name), "{}.{} must be a string", where, name);
  }
  if (role == Role::Assistant) {
    API_CHECK(parse_assistant(object, where, message, ignored));
  } else if (find_value(object, "tool_calls")) {
    return bad_field(where + ".tool_calls", "{}.tool_calls belongs to an assistant message", where);
  }
  return message;
}

}  // namespace

Parsed<std::vector<ChatMessage>> parse_messages(const Value& value, std::vector<std::string>& ignored) {
  if (!value.is_array() || value.get_array().empty())
    return bad_field("messages", "messages must be a list of at least one message");
  std::vector<ChatMessage> messages;
  messages.reserve(value.get_array().size());
  for (const Value& item : value.get_array()) {
    API_TRY(ChatMessage message, parse_message(item, fmt::format("messages[{}]", messages.size()), ignored));
    messages.push_back(std::move(message));
  }
  if (messages.back().role == Role::Assistant) {
    return bad_field("messages",
                     "the last message is the assistant's; continuing it is not available, end with a user or "
                     "tool message");
  }
  return messages;
}

}  // namespace lily::api
