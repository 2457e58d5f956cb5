// Answers put together from the words of the format. However the tokens cut an answer, its parts are the same; every
// piece is valid UTF-8 and every call's arguments are a JSON object.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/output_parser.h"
#include "unit/text/text_support.h"

namespace {

using namespace lily;

constexpr std::string_view kWords[] = {"<tool_call>",
                                       "</tool_call>",
                                       "<think>",
                                       "</think>",
                                       "<|im_end|>",
                                       "<function=f>",
                                       "<function=",
                                       "</function>",
                                       "<parameter=a>",
                                       "<parameter=b>",
                                       "<parameter=",
                                       "</parameter>",
                                       "\n",
                                       "\n\n",
                                       " ",
                                       ">",
                                       "{\"name\":\"f\",\"arguments\":{",
                                       "\"a\":1",
                                       "}}",
                                       "12",
                                       "-1.5e3",
                                       "true",
                                       "null",
                                       "[1, 'x']",
                                       "{'k': (None,)}",
                                       "text",
                                       "é",
                                       "日本",
                                       "\"",
                                       "\\",
                                       "<",
                                       "1e999"};

const json::Array& tools() {
  static const json::Array parsed = json::parse(R"([{"function": {"name": "f", "parameters": {"properties": {
      "a": {"type": ["integer", "array", "boolean"]}, "b": {"anyOf": [{"type": "object"}, {"type": "string"}]}}}}}])")
                                        ->as_array();
  return parsed;
}

struct Parts {
  std::string reasoning, content, calls;
  bool operator==(const Parts&) const = default;
};

Parts parse(const std::vector<TokenId>& ids, bool thinking, bool with_tools) {
  OutputParser parser(test::tiny_tokenizer(), thinking, with_tools ? tools() : json::Array());
  Parts parts;
  const auto add = [&](const OutputDelta& delta) {
    LILY_CHECK(utf8::is_valid(delta.reasoning) && utf8::is_valid(delta.content));
    parts.reasoning += delta.reasoning;
    parts.content += delta.content;
    for (const ParsedToolCall& call : delta.tool_calls) {
      const auto arguments = json::parse(call.arguments);
      LILY_CHECK(arguments && arguments->is_object() && !call.name.empty());
      parts.calls += call.name + call.arguments + "\n";
    }
  };
  for (const TokenId id : ids) add(parser.push(id));
  add(parser.finish());
  return parts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string text;
  for (std::size_t i = 1; i < size; ++i) text += kWords[data[i] % std::size(kWords)];
  const bool thinking = (data[0] & 1) != 0;
  const bool with_tools = (data[0] & 2) != 0;
  const Parts whole = parse(test::encoded(text), thinking, with_tools);
  LILY_CHECK(parse(test::bytewise(text), thinking, with_tools) == whole);
  return 0;
}
