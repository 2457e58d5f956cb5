#include "api/chat_request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/fields.h"

namespace lily::api {
namespace {

using json::Value;

constexpr std::size_t kMostStops = 16;
constexpr std::size_t kLongestStop = 1024;
constexpr std::size_t kLongestCacheKey = std::size_t{64} << 10;
constexpr std::size_t kLongestToolName = 256;

Parsed<std::optional<bool>> optional_bool(const json::Object& object, std::string_view name, std::string_view prefix) {
  const Value* value = find_value(object, name);
  if (!value) return std::optional<bool>();
  const std::string path = fmt::format("{}{}", prefix, name);
  if (!value->is_bool()) return bad_field(path, "{} must be true or false", path);
  return std::optional<bool>(value->get_bool());
}

void ignore(ChatRequest& request, std::string name) {
  constexpr std::size_t kMostNamed = 16;
  if (request.ignored.size() < kMostNamed) request.ignored.push_back(std::move(name));
}

// Every field against the table; what is honoured is read by the functions below.
Parsed<void> check_fields(const json::Object& body, ChatRequest& request) {
  for (const auto& [key, value] : body) {
    if (value.is_null()) continue;
    const std::string name(key);
    const FieldRule* rule = find_chat_field(name);
    if (!rule) {
      ignore(request, name);
    } else if (rule->policy == FieldPolicy::NoEffect && !rule->accepts(value)) {
      return bad_field(name, "{} must be {}", name, rule->expected);
    } else if (rule->policy == FieldPolicy::NeutralOnly && !rule->accepts(value)) {
      return tl::unexpected(ApiError{400, "unsupported_value", name,
                                     fmt::format("{}: the only value supported is {}", name, rule->expected)});
    } else if (rule->policy == FieldPolicy::Refused) {
      return tl::unexpected(
          ApiError{400, "unsupported_parameter", name, fmt::format("{} is not supported: {}", name, rule->expected)});
    }
  }
  return {};
}

Parsed<void> check_model(const json::Object& body, const ChatRules& rules) {
  const Value* model = find_value(body, "model");
  if (!model) return {};
  if (!model->is_string()) return bad_field("model", "model must be a string");
  const std::string_view name = model->get_string();
  if (serves_model(rules, name)) return {};
  return tl::unexpected(ApiError{
      404, "model_not_found", "model",
      fmt::format("the model {} is not served here; use {} or \"lily\"", quote(name, 64), quote(rules.model_id, 64))});
}

Parsed<std::int64_t> parse_max_tokens(const json::Object& body) {
  std::int64_t limit = -1;
  for (const std::string_view name : {"max_tokens", "max_completion_tokens"}) {  // the later one wins
    const Value* value = find_value(body, name);
    if (!value) continue;
    const auto number = as_integer(*value);
    if (!number || *number < -1)
      return bad_field(std::string(name), "{} must be an integer of at least 0, or -1 for as many as fit", name);
    limit = *number;
  }
  return limit;
}

Parsed<std::vector<std::string>> parse_stop(const json::Object& body) {
  std::vector<std::string> stops;
  const Value* value = find_value(body, "stop");
  if (!value) return stops;
  const auto usable = [](const Value& v) {
    return v.is_string() && !v.get_string().empty() && v.get_string().size() <= kLongestStop;
  };
  const json::Array list = value->is_array() ? value->get_array() : json::Array{*value};
  if (list.size() > kMostStops || !std::all_of(list.begin(), list.end(), usable)) {
    return bad_field("stop",
                     "stop must be a non-empty string or a list of up to {} such strings, each of at most {} bytes",
                     kMostStops, kLongestStop);
  }
  for (const Value& stop : list) stops.emplace_back(stop.get_string());
  return stops;
}

Parsed<void> check_tool(const Value& tool, const std::string& where) {
  if (!tool.is_object()) return bad_field(where, "{} must be an object", where);
  const Value* type = find_value(tool.get_object(), "type");
  if (type && *type != Value("function")) return bad_field(where + ".type", "{}.type must be \"function\"", where);
  const Value* function = find_value(tool.get_object(), "function");
  if (!function || !function->is_object())
    return bad_field(where + ".function", "{}.function must be an object", where);
  const Value* name = find_value(function->get_object(), "name");
  if (!name || !name->is_string() || name->get_string().empty() || name->get_string().size() > kLongestToolName) {
    return bad_field(where + ".function.name", "{}.function.name must be a string of 1 to {} bytes", where,
                     kLongestToolName);
  }
  const Value* parameters = find_value(function->get_object(), "parameters");
  if (parameters && !parameters->is_object())
    return bad_field(where + ".function.parameters", "{}.function.parameters must be a JSON schema object", where);
  return {};
}

// "auto" and "none"; what forces a call is not available.
Parsed<bool> tools_wanted(const json::Object& body) {
  const Value* choice = find_value(body, "tool_choice");
  if (!choice || *choice == Value("auto")) return true;
  if (*choice == Value("none")) return false;
  return tl::unexpected(
      ApiError{400, "unsupported_value", "tool_choice", "tool_choice: the values supported are \"auto\" and \"none\""});
}

Parsed<json::Array> parse_tools(const json::Object& body) {
  const Value* value = find_value(body, "tools");
  if (value && !value->is_array()) return bad_field("tools", "tools must be a list");
  if (value) {
    std::size_t i = 0;
    for (const Value& tool : value->get_array()) {
      API_CHECK(check_tool(tool, fmt::format("tools[{}]", i++)));
    }
  }
  API_TRY(const bool wanted, tools_wanted(body));
  return value && wanted ? value->get_array() : json::Array();
}

// An effort: "none" is no thinking, the others think alike.
Parsed<bool> parse_effort(const Value& value, const std::string& path) {
  if (value.is_string()) {
    const std::string_view effort = value.get_string();
    if (effort == "none") return false;
    for (const std::string_view known : {"minimal", "low", "medium", "high", "xhigh", "max"}) {
      if (effort == known) return true;
    }
  }
  return bad_field(path, "{} must be none, minimal, low, medium, high, xhigh or max", path);
}

// thinking: {"type": "enabled" | "disabled"}
Parsed<bool> parse_thinking_type(const Value& value) {
  const Value* type = value.is_object() ? find_value(value.get_object(), "type") : nullptr;
  if (type && *type == Value("disabled")) return false;
  if (!type || *type != Value("enabled"))
    return bad_field("thinking", "thinking must be {{\"type\": \"enabled\"}} or {{\"type\": \"disabled\"}}");
  if (find_value(value.get_object(), "budget_tokens"))
    return bad_field("thinking.budget_tokens",
                     "thinking.budget_tokens is not supported; bound the answer with max_tokens");
  return true;
}

// reasoning: {"effort": ...} or {"enabled": ...}
Parsed<std::optional<bool>> parse_reasoning(const Value& value) {
  if (!value.is_object()) return bad_field("reasoning", "reasoning must be an object");
  const json::Object& object = value.get_object();
  if (find_value(object, "max_tokens"))
    return bad_field("reasoning.max_tokens", "reasoning.max_tokens is not supported; bound the answer with max_tokens");
  API_TRY(const std::optional<bool> enabled, optional_bool(object, "enabled", "reasoning."));
  const Value* effort = find_value(object, "effort");
  if (!effort) return enabled;
  API_TRY(const bool thinks, parse_effort(*effort, "reasoning.effort"));
  return enabled ? enabled : std::optional<bool>(thinks);
}

Parsed<void> parse_template_kwargs(const json::Object& body, ChatRequest& request, std::optional<bool>& thinking) {
  const Value* value = find_value(body, "chat_template_kwargs");
  if (!value) return {};
  if (!value->is_object()) return bad_field("chat_template_kwargs", "chat_template_kwargs must be an object");
  const json::Object& kwargs = value->get_object();
  API_TRY(thinking, optional_bool(kwargs, "enable_thinking", "chat_template_kwargs."));
  API_TRY(const std::optional<bool> preserve, optional_bool(kwargs, "preserve_thinking", "chat_template_kwargs."));
  request.preserve_thinking = preserve.value_or(false);
  for (const auto& [key, unused] : kwargs) {
    if (key != "enable_thinking" && key != "preserve_thinking")
      ignore(request, fmt::format("chat_template_kwargs.{}", std::string_view(key)));
  }
  return {};
}

// Whoever speaks first decides: chat_template_kwargs.enable_thinking, enable_thinking, thinking, reasoning,
// reasoning_effort. All are checked. Without any, no thinking.
Parsed<void> parse_thinking(const json::Object& body, ChatRequest& request) {
  std::optional<bool> by_kwargs;
  API_CHECK(parse_template_kwargs(body, request, by_kwargs));
  API_TRY(const std::optional<bool> by_flag, optional_bool(body, "enable_thinking", ""));
  std::optional<bool> by_type, by_reasoning, by_effort;
  if (const Value* value = find_value(body, "thinking")) {
    API_TRY(by_type, parse_thinking_type(*value));
  }
  if (const Value* value = find_value(body, "reasoning")) {
    API_TRY(by_reasoning, parse_reasoning(*value));
  }
  if (const Value* value = find_value(body, "reasoning_effort")) {
    API_TRY(by_effort, parse_effort(*value, "reasoning_effort"));
  }
  for (const auto& choice : {by_kwargs, by_flag, by_type, by_reasoning, by_effort}) {
    if (choice) {
      request.thinking = *choice;
      break;
    }
  }
  return {};
}

Parsed<void> parse_cache(const json::Object& body, ChatRequest& request) {
  if (const Value* key = find_value(body, "prompt_cache_key")) {
    if (!key->is_string() || key->get_string().size() > kLongestCacheKey)
      return bad_field("prompt_cache_key", "prompt_cache_key must be a string of at most {} bytes", kLongestCacheKey);
    request.cache_key = key->get_string();
  }
  API_TRY(const std::optional<bool> use, optional_bool(body, "cache", ""));
  request.use_cache = use.value_or(true);
  return {};
}

}  // namespace

bool serves_model(const ChatRules& rules, std::string_view name) {
  return name.empty() || name == "lily" || name == "default" || name == rules.model_id;
}

Parsed<ChatRequest> parse_chat_request(const Value& value, const ChatRules& rules) {
  if (!value.is_object()) return bad_field("", "the request body must be a JSON object");
  const json::Object& body = value.get_object();
  ChatRequest request;
  API_CHECK(check_fields(body, request));
  API_CHECK(check_model(body, rules));
  const Value* messages = find_value(body, "messages");
  if (!messages) return bad_field("messages", "messages is missing");
  API_TRY(request.messages, parse_messages(*messages, request.ignored));
  API_TRY(request.tools, parse_tools(body));
  API_TRY(const std::optional<bool> parallel, optional_bool(body, "parallel_tool_calls", ""));
  request.parallel_tool_calls = parallel.value_or(true);
  API_TRY(request.max_tokens, parse_max_tokens(body));
  API_TRY(request.stop, parse_stop(body));
  API_CHECK(parse_thinking(body, request));
  API_CHECK(parse_cache(body, request));
  if (rules.strict && !request.ignored.empty()) {
    const std::string& name = request.ignored.front();
    return tl::unexpected(ApiError{400, "unknown_parameter", name, fmt::format("unknown field {}", quote(name, 64))});
  }
  return request;
}

}  // namespace lily::api
