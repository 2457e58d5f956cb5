#include "api/fields.h"

#include <algorithm>
#include <array>
#include <limits>

namespace lily::api {
namespace {

using json::Value;
using enum FieldPolicy;

bool is_number(const Value& v) {
  return v.is_number();
}
bool is_whole(const Value& v) {
  return v.is_int64() || v.is_uint64();
}
bool is_string(const Value& v) {
  return v.is_string();
}
bool is_bool(const Value& v) {
  return v.is_bool();
}
bool is_object(const Value& v) {
  return v.is_object();
}
bool is_false(const Value& v) {
  return v.is_bool() && !v.get_bool();
}
bool is_true(const Value& v) {
  return v.is_bool() && v.get_bool();
}
bool equals(const Value& v, double wanted) {
  return v.is_number() && v.to_number<double>() == wanted;
}
bool is_zero(const Value& v) {
  return equals(v, 0);
}
bool is_one(const Value& v) {
  return equals(v, 1);
}
bool is_empty_object(const Value& v) {
  return v.is_object() && v.get_object().empty();
}
bool is_empty_array(const Value& v) {
  return v.is_array() && v.get_array().empty();
}
bool is_empty_string(const Value& v) {
  return v.is_string() && v.get_string().empty();
}
bool is_medium(const Value& v) {
  return v.is_string() && v.get_string() == "medium";
}
bool is_text_only(const Value& v) {
  return v.is_array() && v.get_array().size() == 1 && v.get_array()[0] == Value("text");
}
bool is_text_format(const Value& v) {
  if (!v.is_object()) return false;
  const Value* type = v.get_object().if_contains("type");
  return type && *type == Value("text");
}

constexpr std::array kFields{
    FieldRule{"model", Honoured, nullptr, ""},
    FieldRule{"messages", Honoured, nullptr, ""},
    FieldRule{"max_tokens", Honoured, nullptr, ""},
    FieldRule{"max_completion_tokens", Honoured, nullptr, ""},
    FieldRule{"stop", Honoured, nullptr, ""},
    FieldRule{"tools", Honoured, nullptr, ""},
    FieldRule{"tool_choice", Honoured, nullptr, ""},
    FieldRule{"parallel_tool_calls", Honoured, nullptr, ""},
    FieldRule{"chat_template_kwargs", Honoured, nullptr, ""},
    FieldRule{"enable_thinking", Honoured, nullptr, ""},
    FieldRule{"thinking", Honoured, nullptr, ""},
    FieldRule{"reasoning", Honoured, nullptr, ""},
    FieldRule{"reasoning_effort", Honoured, nullptr, ""},
    FieldRule{"prompt_cache_key", Honoured, nullptr, ""},
    FieldRule{"cache", Honoured, nullptr, ""},

    FieldRule{"top_p", NoEffect, is_number, "a number"},
    FieldRule{"top_k", NoEffect, is_whole, "an integer"},
    FieldRule{"min_p", NoEffect, is_number, "a number"},
    FieldRule{"typical_p", NoEffect, is_number, "a number"},
    FieldRule{"seed", NoEffect, is_whole, "an integer"},
    FieldRule{"user", NoEffect, is_string, "a string"},
    FieldRule{"safety_identifier", NoEffect, is_string, "a string"},
    FieldRule{"prompt_cache_retention", NoEffect, is_string, "a string"},
    FieldRule{"service_tier", NoEffect, is_string, "a string"},
    FieldRule{"store", NoEffect, is_bool, "true or false"},
    FieldRule{"metadata", NoEffect, is_object, "an object"},
    FieldRule{"prediction", NoEffect, is_object, "an object"},

    FieldRule{"temperature", NeutralOnly, is_zero, "0 (answers are greedy; sampling is not available)"},
    FieldRule{"stream", NeutralOnly, is_false, "false (streaming is not available)"},
    FieldRule{"n", NeutralOnly, is_one, "1"},
    FieldRule{"best_of", NeutralOnly, is_one, "1"},
    FieldRule{"logprobs", NeutralOnly, is_false, "false"},
    FieldRule{"frequency_penalty", NeutralOnly, is_zero, "0"},
    FieldRule{"presence_penalty", NeutralOnly, is_zero, "0"},
    FieldRule{"repetition_penalty", NeutralOnly, is_one, "1"},
    FieldRule{"logit_bias", NeutralOnly, is_empty_object, "an empty object"},
    FieldRule{"response_format", NeutralOnly, is_text_format, "{\"type\": \"text\"}"},
    FieldRule{"modalities", NeutralOnly, is_text_only, "[\"text\"]"},
    FieldRule{"verbosity", NeutralOnly, is_medium, "\"medium\""},
    FieldRule{"echo", NeutralOnly, is_false, "false"},
    FieldRule{"suffix", NeutralOnly, is_empty_string, "an empty string"},
    FieldRule{"min_tokens", NeutralOnly, is_zero, "0"},
    FieldRule{"ignore_eos", NeutralOnly, is_false, "false"},
    FieldRule{"stop_token_ids", NeutralOnly, is_empty_array, "an empty list"},
    FieldRule{"bad_words", NeutralOnly, is_empty_array, "an empty list"},
    FieldRule{"add_generation_prompt", NeutralOnly, is_true, "true"},
    FieldRule{"continue_final_message", NeutralOnly, is_false, "false"},
    FieldRule{"skip_special_tokens", NeutralOnly, is_true, "true"},
    FieldRule{"include_stop_str_in_output", NeutralOnly, is_false, "false"},
    FieldRule{"mirostat", NeutralOnly, is_zero, "0"},

    FieldRule{"stream_options", Refused, nullptr, "streaming is not available"},
    FieldRule{"top_logprobs", Refused, nullptr, "log-probabilities are not available"},
    FieldRule{"functions", Refused, nullptr, "use tools"},
    FieldRule{"function_call", Refused, nullptr, "use tool_choice"},
    FieldRule{"audio", Refused, nullptr, "the model reads and writes text"},
    FieldRule{"web_search_options", Refused, nullptr, "there is no web search"},
    FieldRule{"structured_outputs", Refused, nullptr, "structured output is not available"},
    FieldRule{"grammar", Refused, nullptr, "structured output is not available"},
    FieldRule{"json_schema", Refused, nullptr, "structured output is not available"},
    FieldRule{"guided_json", Refused, nullptr, "structured output is not available"},
    FieldRule{"guided_regex", Refused, nullptr, "structured output is not available"},
    FieldRule{"guided_choice", Refused, nullptr, "structured output is not available"},
    FieldRule{"guided_grammar", Refused, nullptr, "structured output is not available"},
    FieldRule{"chat_template", Refused, nullptr, "the checkpoint's own template is always used"},
};

}  // namespace

std::span<const FieldRule> chat_fields() {
  return kFields;
}

const FieldRule* find_chat_field(std::string_view name) {
  const auto found = std::find_if(kFields.begin(), kFields.end(), [&](const FieldRule& f) { return f.name == name; });
  return found == kFields.end() ? nullptr : &*found;
}

const Value* find_value(const json::Object& object, std::string_view name) {
  const Value* value = object.if_contains(name);
  return value && !value->is_null() ? value : nullptr;
}

std::optional<std::int64_t> as_integer(const Value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64() && value.get_uint64() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    return static_cast<std::int64_t>(value.get_uint64());
  return std::nullopt;
}

}  // namespace lily::api
