// `lily chat`: a conversation in the terminal. Ctrl-C stops the answer, Ctrl-D ends the program.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "apps/ask.h"
#include "apps/commands.h"
#include "apps/line_editor.h"
#include "apps/terminal.h"

namespace lily::apps {
namespace {

constexpr std::string_view kHelp =
    "  /help            this list\n"
    "  /reset           forget the conversation, keep the system message\n"
    "  /system TEXT     set the system message (alone: show it) and start afresh; '/system -' removes it\n"
    "  /think on|off    let the model think before it answers\n"
    "  /stats on|off    a line of figures after every answer\n"
    "  /exit            end (also Ctrl-D on an empty line)\n"
    "A message that begins with a slash is written with two. Alt-Enter adds a line, a pasted text stays one message,\n"
    "the arrow keys bring earlier lines back, Ctrl-R searches them. Ctrl-C stops the answer.\n";

class Chat {
 public:
  Chat(const ChatCommandOptions& options, const api::LoadedModel& model)
      : options_(options),
        model_(model),
        terminal_(is_terminal(stdout)),
        interactive_(is_terminal(stdin) && terminal_) {}

  int run() {
    LineEditor editor(interactive_ ? default_history_file() : std::string());
    if (interactive_) {
      std::printf("%s%s: /help for commands, Ctrl-D to end%s\n", style_.dim.c_str(), model_.id().c_str(),
                  style_.reset.c_str());
    }
    const InterruptGuard guard;
    const std::string prompt = style_.bold + ">" + style_.reset + " ";
    std::string line;
    while (!ended_) {
      InterruptGuard::clear();
      const auto outcome = editor.read(prompt, line);
      if (outcome == LineEditor::Outcome::End) break;
      if (outcome == LineEditor::Outcome::Interrupted) {
        if (!interactive_) return kExitInterrupted;
        hint("(Ctrl-D ends the program)");
        continue;
      }
      if (line.find_first_not_of(" \t\r\n") == std::string::npos) continue;
      if (const int code = handle(line); code != kExitOk && !interactive_) return code;
    }
    if (interactive_) std::fputc('\n', stdout);
    return kExitOk;
  }

 private:
  int handle(const std::string& line) {
    if (line.starts_with("//")) return answer(line.substr(1));
    if (line.starts_with('/')) return command(line);
    return answer(line);
  }

  int command(const std::string& line) {
    const std::size_t blank = line.find(' ');
    const std::string name = line.substr(0, blank);
    const std::string argument = blank == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', blank));
    if (name == "/help") {
      std::fwrite(kHelp.data(), 1, kHelp.size(), stdout);
    } else if (name == "/reset") {
      messages_.clear();
      hint("(forgotten)");
    } else if (name == "/system") {
      set_system(argument);
    } else if (name == "/think") {
      toggle(argument, options_.thinking, "thinking");
    } else if (name == "/stats") {
      toggle(argument, options_.stats, "figures");
    } else if (name == "/exit" || name == "/quit") {
      ended_ = true;
    } else {
      std::fprintf(stderr, "lily: no command %s; /help lists them, a message may begin with two slashes\n",
                   without_controls(name).c_str());
      return kExitFailed;
    }
    return kExitOk;
  }

  void set_system(const std::string& argument) {
    if (argument.empty()) {
      hint(options_.system.empty() ? "(no system message)" : options_.system);
      return;
    }
    options_.system = argument == "-" ? "" : argument;
    messages_.clear();
    hint("(started afresh)");
  }

  void toggle(const std::string& argument, bool& value, const char* what) {
    if (argument == "on") value = true;
    if (argument == "off") value = false;
    if (argument.empty()) value = !value;
    hint(fmt::format("({} {})", what, value ? "on" : "off"));
  }

  void hint(const std::string& text) {
    std::fprintf(stderr, "%s%s%s\n", error_style_.dim.c_str(), text.c_str(), error_style_.reset.c_str());
  }

  int answer(const std::string& text) {
    messages_.push_back({.role = Role::User, .content = text});
    const auto reply = ask_model();
    if (!reply) {
      messages_.pop_back();
      return report(reply.error());
    }
    std::fputs("\n", stdout);
    std::fflush(stdout);
    if (reply->finish.reason == FinishReason::Cancelled) hint("(stopped)");
    if (reply->finish.reason == FinishReason::Length) hint("(cut: the limit of tokens is reached)");
    if (options_.stats) hint(stats_line(*reply));
    remember(*reply);
    if (reply->finish.reason == FinishReason::Cancelled && !interactive_) return kExitInterrupted;
    return std::ferror(stdout) != 0 ? kExitFailed : kExitOk;
  }

  Result<Reply> ask_model() {
    std::vector<ChatMessage> conversation;
    if (!options_.system.empty()) conversation.push_back({.role = Role::System, .content = options_.system});
    conversation.insert(conversation.end(), messages_.begin(), messages_.end());
    LILY_TRY(Request request, make_request(model_, conversation, {}, options_.thinking, options_.max_tokens));
    bool thinking_shown = false;
    bool content_shown = false;
    AskOptions ask_options{.thinking = options_.thinking};
    ask_options.on_text = [&](std::string_view reasoning, std::string_view content) {
      if (!reasoning.empty()) {
        thinking_shown = true;
        show(style_.dim, reasoning);
      }
      if (content.empty()) return;
      if (thinking_shown && !content_shown) std::fputs("\n\n", stdout);
      content_shown = true;
      show("", content);
    };
    return ask(model_, std::move(request), ask_options);
  }

  // A stopped answer stays in the conversation as far as it went; a turn without any answer does not.
  void remember(const Reply& reply) {
    if (reply.content.empty() && reply.finish.reason == FinishReason::Cancelled) {
      messages_.pop_back();
      return;
    }
    ChatMessage message{.role = Role::Assistant, .content = reply.content};
    if (!reply.reasoning.empty()) message.reasoning = reply.reasoning;
    messages_.push_back(std::move(message));
  }

  void show(const std::string& begin, std::string_view text) {
    const std::string body = terminal_ ? without_controls(text) : std::string(text);
    const std::string out = begin.empty() ? body : begin + body + style_.reset;
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }

  ChatCommandOptions options_;  // as changed by commands
  const api::LoadedModel& model_;
  const bool terminal_, interactive_;
  const Style style_ = style_for(stdout), error_style_ = style_for(stderr);
  std::vector<ChatMessage> messages_;  // without the system message
  bool ended_ = false;
};

}  // namespace

int run_chat(const ChatCommandOptions& options) {
  const auto model = load(options.model, options.cache);
  if (!model) return report(model.error());
  return Chat(options, *model).run();
}

}  // namespace lily::apps
