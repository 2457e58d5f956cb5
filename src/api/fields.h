// What becomes of each field of a chat request: the one table, published in docs/api.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"

namespace lily::api {

enum class FieldPolicy : std::uint8_t {
  Honoured,     // does what it says
  NoEffect,     // known and accepted; cannot change a greedy answer
  NeutralOnly,  // accepted where its value asks for nothing, else 400
  Refused,      // would change the answer and is not supported: 400 unless null
};

struct FieldRule {
  std::string_view name;
  FieldPolicy policy;
  bool (*accepts)(const json::Value& value);  // NoEffect: right type; NeutralOnly: neutral value; else null
  std::string_view expected;                  // completes "must be ..." or "only ... is supported"
};

std::span<const FieldRule> chat_fields();
const FieldRule* find_chat_field(std::string_view name);  // null: unknown

// A field of an object; null if it is absent or holds null, which mean the same everywhere.
const json::Value* find_value(const json::Object& object, std::string_view name);

// The value as an integer, if it is one that fits.
std::optional<std::int64_t> as_integer(const json::Value& value);

}  // namespace lily::api
