// From the bare text of a tool call's argument to JSON, by the tool's schema, without loss: what does not fit its type
// stays a string, a string stays as it is, numbers keep their digits.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace lily {

class ArgumentTypes {
 public:
  // tools: the request's array, {"type": "function", "function": {...}} or {"name": ..., "parameters": ...} each. A
  // function that is not there has no types: all its arguments are strings. Keeps a reference to `tools`.
  ArgumentTypes(const json::Array& tools, std::string_view function);

  // JSON text of the argument. Where a schema allows a string among other types, the others win only by exact JSON.
  std::string to_json(std::string_view name, std::string_view text) const;

 private:
  const json::Object* parameters_ = nullptr;  // the function's schema
};

// JSON text of a Python literal (None, True, 'text', [..], (..), {..}); empty when `text` is none.
std::string python_literal_to_json(std::string_view text);

}  // namespace lily
