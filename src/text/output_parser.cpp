// A state machine over token ids: reasoning, content, or inside a call.
//
//   Reasoning --</think>--> Content --<tool_call>--> Call --</tool_call>--> Content
//   Reasoning --<tool_call>--> holding back ids: --</think>--> they were reasoning; Content
//                                                --the end---> they are read again as content
#include "text/output_parser.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/tool_call.h"

namespace lily {

namespace {

constexpr std::string_view kCallOpen = "<tool_call>";
constexpr std::string_view kCallClose = "</tool_call>";

// The text of a call as it grows, and whether it ends inside a parameter's value, where tags are data.
class CallText {
 public:
  void clear() { *this = CallText(); }

  void append(std::string_view piece) {
    text_ += piece;
    static constexpr std::string_view kOpen = "<parameter=";
    static constexpr std::string_view kClose = "</parameter>";
    while ((scanned_ = text_.find('<', scanned_)) != std::string::npos) {
      const std::string_view rest = std::string_view(text_).substr(scanned_);
      if (rest.starts_with(kOpen)) {
        in_value_ = true;
      } else if (rest.starts_with(kClose)) {
        in_value_ = false;
      } else if (rest.size() < kClose.size() && (kOpen.starts_with(rest) || kClose.starts_with(rest))) {
        return;  // may still become a tag: look again with more text
      }
      ++scanned_;
    }
    scanned_ = text_.size();
  }

  // A closing call tag inside a value is part of it, unless the function has ended and only </parameter> is missing.
  bool takes_tags() const {
    const std::size_t end = text_.find_last_not_of(" \t\r\n");
    return in_value_ && !std::string_view(text_).substr(0, end + 1).ends_with("</function>");
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::size_t scanned_ = 0;
  bool in_value_ = false;
};

}  // namespace

struct OutputParser::Impl {
  Impl(const Tokenizer& tokenizer, bool thinking, json::Array request_tools)
      : tools(std::move(request_tools)), detokenizer(tokenizer), state(thinking ? State::Reasoning : State::Content) {
    const auto id = [&](std::string_view literal) {
      const auto found = tokenizer.find_added(literal);
      LILY_CHECK(found.has_value());  // Tokenizer::load has seen to the chat markers
      return *found;
    };
    think_open = id("<think>");
    think_close = id("</think>");
    call_open = id(kCallOpen);
    call_close = id(kCallClose);
  }

  enum class State { Reasoning, Content, Call };

  void accept(TokenId id, OutputDelta& out);
  void accept_in_reasoning(TokenId id, OutputDelta& out);
  void accept_in_content(TokenId id, OutputDelta& out);
  void accept_in_call(TokenId id, OutputDelta& out);

  void add_reasoning(std::string_view text, OutputDelta& out);
  void add_content(std::string_view text, OutputDelta& out);
  void flush_character(OutputDelta& out);
  void end_thinking();
  void end_call(bool closed, OutputDelta& out);
  void held_was_reasoning(OutputDelta& out);
  void held_is_answer(OutputDelta& out);
  void finish(OutputDelta& out);

  json::Array tools;
  Detokenizer detokenizer;
  TokenId think_open, think_close, call_open, call_close;

  State state;
  std::string blanks;           // end of the text so far, kept back: newlines of reasoning, any blanks of content
  bool at_start = true;         // of reasoning: nothing but newlines yet
  bool strip_newlines = false;  // of content: right behind </think>
  bool has_content = false;     // something that is not blank
  bool after_call = false;      // nothing but blanks since the last call
  CallText call;
  bool holding = false;
  bool replaying = false;     // held ids are read as content: think tags are text
  std::vector<TokenId> held;  // from a <tool_call> inside the think block on
  std::int64_t n_reasoning = 0;
};

void OutputParser::Impl::accept(TokenId id, OutputDelta& out) {
  if (holding) {
    if (id == think_close) {
      held_was_reasoning(out);
      end_thinking();
    } else {
      held.push_back(id);
    }
    return;
  }
  switch (state) {
    case State::Reasoning:
      return accept_in_reasoning(id, out);
    case State::Content:
      return accept_in_content(id, out);
    case State::Call:
      return accept_in_call(id, out);
  }
}

void OutputParser::Impl::accept_in_reasoning(TokenId id, OutputDelta& out) {
  if (id == think_close) {
    flush_character(out);
    end_thinking();
  } else if (id == call_open && !tools.empty()) {
    flush_character(out);
    holding = true;
    held.assign(1, id);
  } else {
    ++n_reasoning;
    if (id == think_open && at_start) return;  // the prompt has opened the block already
    add_reasoning(detokenizer.push(id), out);
  }
}

void OutputParser::Impl::accept_in_content(TokenId id, OutputDelta& out) {
  if (id == think_open && !has_content && !replaying) {
    flush_character(out);
    blanks.clear();
    state = State::Reasoning;
  } else if (id == think_close && !has_content && !replaying) {
    blanks.clear();
    strip_newlines = true;
  } else if (id == call_open && !tools.empty()) {
    flush_character(out);
    state = State::Call;
    call.clear();
  } else {
    add_content(detokenizer.push(id), out);
  }
}

void OutputParser::Impl::accept_in_call(TokenId id, OutputDelta& out) {
  if ((id == call_close || id == call_open) && !call.takes_tags()) {
    flush_character(out);
    end_call(true, out);
    if (id == call_open) {  // the one before was never closed
      state = State::Call;
      call.clear();
    }
    return;
  }
  call.append(detokenizer.push(id));
}

void OutputParser::Impl::add_reasoning(std::string_view text, OutputDelta& out) {
  if (at_start) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  at_start = false;
  const std::size_t end = text.find_last_not_of('\n') + 1;
  if (end > 0) {
    out.reasoning += blanks;
    out.reasoning += text.substr(0, end);
    blanks.clear();
  }
  blanks += text.substr(end);
}

void OutputParser::Impl::add_content(std::string_view text, OutputDelta& out) {
  if (strip_newlines) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  strip_newlines = false;
  const std::size_t end = text.find_last_not_of(" \t\r\n") + 1;
  if (end > 0) {
    out.content += blanks;
    out.content += text.substr(0, end);
    blanks.clear();
    has_content = true;
    after_call = false;
  }
  blanks += text.substr(end);
}

// A tag ends the text before it: a character cut off there is replaced.
void OutputParser::Impl::flush_character(OutputDelta& out) {
  const std::string text = detokenizer.finish();
  switch (state) {
    case State::Reasoning:
      return add_reasoning(text, out);
    case State::Content:
      return add_content(text, out);
    case State::Call:
      return call.append(text);
  }
}

void OutputParser::Impl::end_thinking() {
  blanks.clear();
  state = State::Content;
  strip_newlines = true;
}

void OutputParser::Impl::end_call(bool closed, OutputDelta& out) {
  state = State::Content;
  if (auto calls = parse_tool_call(call.text(), closed, tools)) {
    blanks.clear();
    strip_newlines = false;
    has_content = after_call = true;
    std::move(calls->begin(), calls->end(), std::back_inserter(out.tool_calls));
    return;
  }
  add_content(kCallOpen, out);
  add_content(call.text(), out);
  if (closed) add_content(kCallClose, out);
}

void OutputParser::Impl::held_was_reasoning(OutputDelta& out) {
  holding = false;
  n_reasoning += static_cast<std::int64_t>(held.size());
  for (const TokenId id : std::exchange(held, {})) add_reasoning(detokenizer.push(id), out);
  add_reasoning(detokenizer.finish(), out);
}

// The think block never ended: if what was held back has a whole call in it, that call is meant.
void OutputParser::Impl::held_is_answer(OutputDelta& out) {
  const std::vector<TokenId> ids = held;
  const std::string reasoning_end = std::exchange(blanks, {});
  OutputDelta answer;
  holding = false;
  replaying = true;
  state = State::Content;
  for (const TokenId id : ids) accept(id, answer);
  finish(answer);
  if (!answer.tool_calls.empty()) {
    out.content += answer.content;
    std::move(answer.tool_calls.begin(), answer.tool_calls.end(), std::back_inserter(out.tool_calls));
    return;
  }
  state = State::Reasoning;
  blanks = reasoning_end;
  held_was_reasoning(out);
  out.reasoning += std::exchange(blanks, {});
}

void OutputParser::Impl::finish(OutputDelta& out) {
  if (holding) return held_is_answer(out);
  flush_character(out);
  if (state == State::Call) end_call(false, out);
  std::string& text = state == State::Reasoning ? out.reasoning : out.content;
  if (!after_call) text += blanks;
  blanks.clear();
}

OutputParser::OutputParser(const Tokenizer& tokenizer, bool thinking, const json::Array& tools)
    : impl_(std::make_unique<Impl>(tokenizer, thinking, tools)) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

OutputDelta OutputParser::push(TokenId id) {
  OutputDelta out;
  impl_->accept(id, out);
  return out;
}

OutputDelta OutputParser::finish() {
  OutputDelta out;
  impl_->finish(out);
  return out;
}

std::int64_t OutputParser::reasoning_tokens() const {
  return impl_->n_reasoning;
}

}  // namespace lily
