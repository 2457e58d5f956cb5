// Splits what the model writes into reasoning, content and tool calls, as it comes. Tags are recognised by token id.
#pragma once

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

class OutputParser {
 public:
  // thinking: the prompt ended inside <think>. tools: the request's array, for the types of parameters; empty: calls stay text.
  OutputParser(const Tokenizer& tokenizer, bool thinking, const json::Array& tools);
  OutputParser(OutputParser&&) noexcept;
  ~OutputParser();

  OutputDelta push(TokenId id);
  OutputDelta finish();                    // end of the answer: releases what was held back
  std::int64_t reasoning_tokens() const;   // tokens spent inside the think block

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lily
