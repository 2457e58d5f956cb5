// Splits what the model writes into reasoning, content and tool calls, as it comes. Tags are recognised by token id.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace lily {

struct ParsedToolCall {
  std::string name;
  std::string arguments;  // JSON object text
};

struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ParsedToolCall> tool_calls;  // calls completed by this push
};

// What comes out, summed over an answer, depends on the text and the tags alone, not on how tokens cut the text:
//  - reasoning: the text up to </think>, without newlines at its two ends;
//  - content: the text behind it, without newlines at its start and blanks before a tool call;
//  - a tool call that cannot be read becomes content, as written;
//  - a call opened inside the think block ends it, unless </think> follows: then it was part of the reasoning. So what
//    follows such a call is held back until that is known.
// Special tokens (end of turn and the like) never appear in the text. A character that the answer's end cuts off
// becomes one U+FFFD.
class OutputParser {
 public:
  // thinking: the prompt ended inside <think>. tools: the request's array, for the types of parameters; empty: calls
  // stay text.
  OutputParser(const Tokenizer& tokenizer, bool thinking, const json::Array& tools);
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;
  ~OutputParser();

  OutputDelta push(TokenId id);
  OutputDelta finish();                   // end of the answer, once: releases what was held back
  std::int64_t reasoning_tokens() const;  // tokens spent inside the think block, its closing tag not counted

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lily
