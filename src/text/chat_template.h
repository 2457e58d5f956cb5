// The model's chat template, rendered natively. Untrusted text and the template's own control markers stay apart until
// they are token ids, so no user or tool text ever becomes a control token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace lily {

enum class Role : std::uint8_t { System, User, Assistant, Tool };

struct ToolCall {
  std::string name;
  json::Object arguments;  // client's key order
};

struct ChatMessage {
  Role role = Role::User;
  std::string content;                   // text parts already joined; empty for null
  std::optional<std::string> reasoning;  // reasoning_content
  std::vector<ToolCall> tool_calls;      // assistant only
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool enable_thinking = false;
  bool preserve_thinking = false;
  bool strict = false;  // refuse what the template itself refuses (late system messages)
};

// A run of prompt text: either one chat marker (kChatMarkers), or text in which literals of added tokens are just text.
// Adjacent plain text is one span, so that it is tokenised as the whole string would be.
struct PromptSpan {
  bool control = false;
  std::string text;
};

struct RenderedPrompt {
  std::vector<PromptSpan> spans;
  // Indexes into spans, ascending: a later prompt of the same conversation is likely to share everything before that
  // span (end of the system and tools block, end of each user turn and of each run of tool results, before the
  // generation prompt).
  std::vector<std::size_t> boundaries;
  std::string text() const;  // all spans joined
};

struct EncodedPrompt {
  std::vector<TokenId> tokens;
  std::vector<std::int64_t> boundaries;  // ascending token counts
};

class ChatTemplate {
 public:
  // Knows the template by the hash of all its text but the two literals of the tools block; those are taken from the
  // text, so that a model may word them its own way. Any other template is Unsupported.
  static Result<ChatTemplate> load(std::string_view template_text);

  // tools: the request's array, each element printed as the client wrote it. Errors (InvalidArgument) carry the
  // template's own reason. Late system messages are rendered in their place unless options.strict.
  Result<RenderedPrompt> render(const std::vector<ChatMessage>& messages, const json::Array& tools,
                                const ChatOptions& options) const;

  const std::string& name() const { return name_; }  // "Qwen3.6", or "Qwen3.6 with its own tools text"

 private:
  std::string name_;
  std::string tools_header_;
  std::string tools_instructions_;
};

EncodedPrompt encode(const RenderedPrompt& prompt, const Tokenizer& tokenizer);

}  // namespace lily
