// The Jinja template of Qwen3.6, statement by statement, in C++. What it prints itself goes through trusted(), where
// chat markers become control spans; everything that came with the request goes through plain() and stays text.
#include "text/chat_template.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "base/utf8.h"

namespace lily {

namespace {

// SHA-256 of the template without the two literals of the tools block, and of Qwen3.6's literals.
constexpr std::string_view kSkeletonHash = "d0eb0b0fdc0afd8d6989dfef50887391945af40024eb282dd06a2b5324f5d161";
constexpr std::string_view kQwenHeaderHash = "c1ac20d770de32b1f158c730a299681c8cc51b3868454fbba102ac9aeacad7bf";
constexpr std::string_view kQwenInstructionsHash = "c618bf70de036a3337fbf9cfaf7171d7b700d3e116d61b6f4a40511e1ab4e25b";

// What stands right before each of the two literals, with the opening quote.
constexpr std::string_view kBeforeHeader = "{{- '<|im_start|>system\\n' }}\n    {{- \"";
constexpr std::string_view kBeforeInstructions = "{{- \"\\n</tools>\" }}\n    {{- '";

struct Literal {
  std::size_t begin;  // of its source text, behind the opening quote
  std::size_t end;    // at the closing quote
  std::string value;
};

// The string literal behind the only occurrence of `before`, whose last character is its quote.
std::optional<Literal> find_literal(std::string_view source, std::string_view before) {
  const std::size_t at = source.find(before);
  if (at == std::string_view::npos || source.find(before, at + 1) != std::string_view::npos) return std::nullopt;
  Literal literal{at + before.size(), 0, {}};
  for (std::size_t i = literal.begin; i < source.size(); ++i) {
    if (source[i] == before.back()) {
      literal.end = i;
      return literal;
    }
    if (source[i] != '\\') {
      literal.value += source[i];
      continue;
    }
    if (++i == source.size()) break;
    switch (source[i]) {
      case 'n':
        literal.value += '\n';
        break;
      case 't':
        literal.value += '\t';
        break;
      case '\\':
      case '\'':
      case '"':
        literal.value += source[i];
        break;
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

// What Python's str.isspace() says.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Python's str.strip(), over valid UTF-8.
std::string_view strip(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t next = begin;
    if (!is_space(utf8::next(text, next))) break;
    begin = next;
  }
  std::size_t end = text.size();
  while (end > begin) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    std::size_t next = last;
    if (!is_space(utf8::next(text, next))) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

std::string_view strip_leading_newlines(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view strip_trailing_newlines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

class SpanWriter {
 public:
  void plain(std::string_view text) {
    if (text.empty()) return;
    if (prompt_.spans.empty() || prompt_.spans.back().control) prompt_.spans.push_back({});
    prompt_.spans.back().text += text;
  }

  // Text of the template itself.
  void trusted(std::string_view text) {
    while (!text.empty()) {
      const auto [at, marker] = first_marker(text);
      plain(text.substr(0, at));
      if (!marker.empty()) prompt_.spans.push_back({true, std::string(marker)});
      text.remove_prefix(std::min(text.size(), at + marker.size()));
    }
  }

  void boundary() {
    const std::size_t here = prompt_.spans.size();
    if (prompt_.boundaries.empty() || prompt_.boundaries.back() != here) prompt_.boundaries.push_back(here);
  }

  RenderedPrompt take() { return std::move(prompt_); }

 private:
  static std::pair<std::size_t, std::string_view> first_marker(std::string_view text) {
    for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
      for (const std::string_view marker : kChatMarkers) {
        if (text.substr(at).starts_with(marker)) return {at, marker};
      }
    }
    return {text.size(), {}};
  }

  RenderedPrompt prompt_;
};

// The index of the last user message that is a question and not a tool result in disguise.
std::optional<std::size_t> last_query(const std::vector<ChatMessage>& messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role != Role::User) continue;
    const std::string_view content = strip(messages[i].content);
    if (!content.starts_with("<tool_response>") || !content.ends_with("</tool_response>")) return i;
  }
  return std::nullopt;
}

// The parts of an assistant turn: given apart, or cut out of the content at its think tags.
struct AssistantText {
  std::string_view reasoning;
  std::string_view content;
};

AssistantText split_assistant(const ChatMessage& message) {
  static constexpr std::string_view kOpen = "<think>";
  static constexpr std::string_view kClose = "</think>";
  const std::string_view content = strip(message.content);
  if (message.reasoning) return {strip(*message.reasoning), content};
  const std::size_t first_close = content.find(kClose);
  if (first_close == std::string_view::npos) return {{}, content};
  std::string_view reasoning = strip_trailing_newlines(content.substr(0, first_close));
  if (const std::size_t open = reasoning.rfind(kOpen); open != std::string_view::npos) {
    reasoning.remove_prefix(open + kOpen.size());
  }
  const std::size_t last_close = content.rfind(kClose);
  return {strip(reasoning), strip_leading_newlines(content.substr(last_close + kClose.size()))};
}

class Renderer {
 public:
  Renderer(const std::vector<ChatMessage>& messages, const ChatOptions& options)
      : messages_(messages), options_(options) {}

  void tools_block(const json::Array& tools, std::string_view header, std::string_view instructions) {
    out_.trusted("<|im_start|>system\n");
    out_.trusted(header);
    for (const json::Value& tool : tools) {
      out_.trusted("\n");
      out_.plain(json::python_dumps(tool));
    }
    out_.trusted("\n</tools>");
    out_.trusted(instructions);
    if (messages_.front().role == Role::System) {
      const std::string_view content = strip(messages_.front().content);
      if (!content.empty()) out_.trusted("\n\n");
      out_.plain(content);
    }
    close_turn();
    out_.boundary();
  }

  void turn(std::string_view role, const ChatMessage& message) {
    out_.trusted("<|im_start|>");
    out_.trusted(role);
    out_.trusted("\n");
    out_.plain(strip(message.content));
    close_turn();
    out_.boundary();
  }

  void assistant(std::size_t index, std::size_t query) {
    const ChatMessage& message = messages_[index];
    const auto [reasoning, content] = split_assistant(message);
    out_.trusted("<|im_start|>assistant\n");
    if (options_.preserve_thinking || index > query) {
      out_.trusted("<think>\n");
      out_.plain(reasoning);
      out_.trusted("\n</think>\n\n");
    }
    out_.plain(content);
    std::string_view separator = strip(content).empty() ? "" : "\n\n";
    for (const ToolCall& call : message.tool_calls) {
      out_.trusted(separator);
      tool_call(call);
      separator = "\n";
    }
    close_turn();
  }

  // Consecutive tool messages form one user turn. One that opens the conversation gets no header: the template's way.
  void tool_result(std::size_t index) {
    const bool first_of_run = index > 0 && messages_[index - 1].role != Role::Tool;
    const bool last_of_run = index + 1 == messages_.size() || messages_[index + 1].role != Role::Tool;
    if (first_of_run) out_.trusted("<|im_start|>user");
    out_.trusted("\n<tool_response>\n");
    out_.plain(strip(messages_[index].content));
    out_.trusted("\n</tool_response>");
    if (!last_of_run) return;
    close_turn();
    out_.boundary();
  }

  void generation_prompt() {
    out_.boundary();
    out_.trusted("<|im_start|>assistant\n");
    out_.trusted(options_.enable_thinking ? "<think>\n" : "<think>\n\n</think>\n\n");
  }

  RenderedPrompt take() { return out_.take(); }

 private:
  void close_turn() { out_.trusted("<|im_end|>\n"); }

  void tool_call(const ToolCall& call) {
    out_.trusted("<tool_call>\n<function=");
    out_.plain(call.name);
    out_.trusted(">\n");
    for (const auto& argument : call.arguments) {
      const auto key = argument.key();
      out_.trusted("<parameter=");
      out_.plain({key.data(), key.size()});
      out_.trusted(">\n");
      if (const auto* text = argument.value().if_string()) {
        out_.plain({text->data(), text->size()});
      } else {
        out_.plain(json::python_dumps(argument.value()));
      }
      out_.trusted("\n</parameter>\n");
    }
    out_.trusted("</function>\n</tool_call>");
  }

  const std::vector<ChatMessage>& messages_;
  const ChatOptions& options_;
  SpanWriter out_;
};

}  // namespace

std::string RenderedPrompt::text() const {
  std::string joined;
  for (const PromptSpan& span : spans) joined += span.text;
  return joined;
}

Result<ChatTemplate> ChatTemplate::load(std::string_view template_text) {
  const auto header = find_literal(template_text, kBeforeHeader);
  const auto instructions = find_literal(template_text, kBeforeInstructions);
  if (template_text.empty()) {
    return fail(ErrorCode::NotFound,
                "the checkpoint has no chat template; put its chat_template.jinja beside the config");
  }
  std::string skeleton;
  if (header && instructions && header->end < instructions->begin) {
    skeleton += template_text.substr(0, header->begin);
    skeleton += template_text.substr(header->end, instructions->begin - header->end);
    skeleton += template_text.substr(instructions->end);
  }
  if (sha256_hex(skeleton) != kSkeletonHash) {
    return fail(ErrorCode::Unsupported,
                "chat_template.jinja is not the template of Qwen3.6 (SHA-256 {}); this program renders that one alone, "
                "whose tools text may differ; restore the model's own file",
                sha256_hex(template_text));
  }
  const bool is_qwen =
      sha256_hex(header->value) == kQwenHeaderHash && sha256_hex(instructions->value) == kQwenInstructionsHash;
  ChatTemplate result;
  result.name_ = is_qwen ? "Qwen3.6" : "Qwen3.6 with its own tools text";
  result.tools_header_ = header->value;
  result.tools_instructions_ = instructions->value;
  return result;
}

Result<RenderedPrompt> ChatTemplate::render(const std::vector<ChatMessage>& messages, const json::Array& tools,
                                            const ChatOptions& options) const {
  if (messages.empty()) return fail(ErrorCode::InvalidArgument, "No messages provided.");
  const auto query = last_query(messages);
  if (!query) return fail(ErrorCode::InvalidArgument, "No user query found in messages.");
  Renderer renderer(messages, options);
  if (!tools.empty()) renderer.tools_block(tools, tools_header_, tools_instructions_);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    switch (messages[i].role) {
      case Role::System:
        if (i > 0 && options.strict) {
          return fail(ErrorCode::InvalidArgument, "System message must be at the beginning.");
        }
        if (i > 0 || tools.empty()) renderer.turn("system", messages[i]);  // with tools it stands behind them
        break;
      case Role::User:
        renderer.turn("user", messages[i]);
        break;
      case Role::Assistant:
        renderer.assistant(i, *query);
        break;
      case Role::Tool:
        renderer.tool_result(i);
        break;
    }
  }
  if (options.add_generation_prompt) renderer.generation_prompt();
  return renderer.take();
}

EncodedPrompt encode(const RenderedPrompt& prompt, const Tokenizer& tokenizer) {
  EncodedPrompt encoded;
  auto boundary = prompt.boundaries.begin();
  for (std::size_t i = 0; i <= prompt.spans.size(); ++i) {
    for (; boundary != prompt.boundaries.end() && *boundary == i; ++boundary) {
      encoded.boundaries.push_back(static_cast<std::int64_t>(encoded.tokens.size()));
    }
    if (i == prompt.spans.size()) break;
    const PromptSpan& span = prompt.spans[i];
    if (!span.control) {
      tokenizer.encode_plain(span.text, encoded.tokens);
      continue;
    }
    const auto id = tokenizer.find_added(span.text);
    LILY_CHECK(id.has_value());  // Tokenizer::load has seen to the chat markers
    encoded.tokens.push_back(*id);
  }
  return encoded;
}

}  // namespace lily
