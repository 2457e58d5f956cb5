// JSON on top of Boost.JSON: parsing with limits, key order kept, and the two text forms that are needed.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lily::json {

using Value = boost::json::value;
using Object = boost::json::object;
using Array = boost::json::array;

// Deepest nesting that parse() accepts, also inside fields that are ignored afterwards.
inline constexpr std::size_t kMaxDepth = 128;

// Parses one JSON document; a UTF-8 byte order mark before it and blanks around it are accepted, anything else
// after it is not. Errors (InvalidArgument) give the byte offset and never echo the input.
Result<Value> parse(std::string_view text, std::size_t max_depth = kMaxDepth);

// Compact JSON: shortest round-trip numbers, non-ASCII kept. Invalid UTF-8 in strings becomes U+FFFD.
std::string dump(const Value& value);

// What Python's json.dumps(value, ensure_ascii=False) prints: ", " and ": " separators, key order kept,
// floats as repr() prints them. The chat template's `tojson` is this.
std::string python_dumps(const Value& value);

}  // namespace lily::json
