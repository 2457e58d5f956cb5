// Reads the text of one tool call block:
//
//   <function=NAME>
//   <parameter=KEY>
//   VALUE
//   </parameter>
//   </function>
//
// VALUE is bare text; what it means as JSON follows from the tool's schema (argument_types.h). A block with
// {"name": ..., "arguments": {...}} instead is accepted too: the model drifts into it now and then.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/output_parser.h"

namespace lily {

// body: what stands between the call tags. closed: the closing tag was there; then a missing </function> is forgiven.
// A function that is not among the tools is returned all the same, its arguments as strings: the client decides.
// Nothing: the block is broken.
std::optional<std::vector<ParsedToolCall>> parse_tool_call(std::string_view body, bool closed,
                                                           const json::Array& tools);

}  // namespace lily
