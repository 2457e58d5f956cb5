// Conversations out of bytes: a byte of roles and flags, then text up to the next zero. Whatever the text says, the
// control tokens of the prompt are those of the template, and the text survives.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/nfc.h"
#include "unit/text/text_support.h"

namespace {

using namespace lily;

std::string valid(std::string_view text) {
  std::string out;
  utf8::append_repaired(out, text);
  return out;
}

std::vector<ChatMessage> conversation(std::string_view bytes) {
  std::vector<ChatMessage> messages;
  while (!bytes.empty()) {
    const auto flags = static_cast<unsigned char>(bytes.front());
    const std::size_t end = std::min(bytes.find('\0', 1), bytes.size());
    ChatMessage message;
    message.role = static_cast<Role>(flags % 4);
    message.content = valid(bytes.substr(1, end - 1));
    if (message.role == Role::Assistant && (flags & 16) != 0) message.reasoning = message.content;
    if (message.role == Role::Assistant && (flags & 32) != 0) {
      message.tool_calls.push_back({message.content, json::Object{{message.content, message.content}, {"n", 1.5}}});
    }
    messages.push_back(std::move(message));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return messages;
}

void check(const RenderedPrompt& prompt) {
  const Tokenizer& tokenizer = test::tiny_tokenizer();
  const TokenId first_added = test::added("<|endoftext|>");
  const EncodedPrompt encoded = encode(prompt, tokenizer);
  std::size_t n_control_tokens = 0;
  for (const TokenId id : encoded.tokens) n_control_tokens += id >= first_added ? 1 : 0;
  std::size_t n_control_spans = 0;
  std::string text;
  for (const PromptSpan& span : prompt.spans) {
    n_control_spans += span.control ? 1 : 0;
    std::string buffer;
    text += nfc(span.text, buffer);
  }
  LILY_CHECK(n_control_tokens == n_control_spans);
  LILY_CHECK(tokenizer.decode(encoded.tokens, false) == text);
  std::int64_t last = 0;
  for (const std::int64_t boundary : encoded.boundaries) {
    LILY_CHECK(boundary >= last && boundary <= static_cast<std::int64_t>(encoded.tokens.size()));
    last = boundary;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ChatTemplate chat_template = ChatTemplate::load(test::tiny_file("chat_template.jinja")).value();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  (void)ChatTemplate::load(text);
  ChatOptions options;
  options.enable_thinking = (data[0] & 1) != 0;
  options.preserve_thinking = (data[0] & 2) != 0;
  options.strict = (data[0] & 4) != 0;
  json::Array tools;
  if ((data[0] & 8) != 0) tools.push_back(json::Value{{"name", valid(text)}});
  if (const auto prompt = chat_template.render(conversation(text), tools, options)) check(*prompt);
  return 0;
}
