#include "apps/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>

#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "apps/terminal.h"

namespace lily::apps {
namespace {

constexpr int kHistoryLines = 1000;
constexpr const char* kPasteOn = "\x1b[?2004h";  // the terminal then marks pasted text
constexpr const char* kPasteOff = "\x1b[?2004l";
constexpr std::string_view kPasteEnd = "\x1b[201~";
// libedit shows what stands between two of these as it is and gives it no width.
constexpr char kPromptEscape = '\1';

// libedit decodes input by the locale; in "C" it would take UTF-8 apart.
void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::Impl {
  std::string history_file;
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string prompt;
  bool interrupted = false;
  std::chrono::steady_clock::time_point began{};  // of reading the line

  static Impl& of(EditLine* edit) {
    Impl* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *self;
  }

  static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }

  static unsigned char on_interrupt(EditLine* edit, int) {
    const LineInfoW* info = el_wline(edit);  // positions in characters
    const auto before = static_cast<int>(info->cursor - info->buffer);
    const auto after = static_cast<int>(info->lastchar - info->cursor);
    el_cursor(edit, after);
    el_deletestr(edit, before + after);
    of(edit).interrupted = true;
    return CC_NEWLINE;
  }

  // Ctrl-Space gives the same byte, but no hand is so fast: an early Ctrl-D is there when reading begins.
  static unsigned char on_early_end(EditLine* edit, int) {
    const LineInfo* info = el_line(edit);
    const bool early = std::chrono::steady_clock::now() - of(edit).began < std::chrono::milliseconds(50);
    return early && info->lastchar == info->buffer ? CC_EOF : CC_NORM;
  }

  static unsigned char on_newline_key(EditLine* edit, int) {
    return el_insertstr(edit, "\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  // Takes a pasted text whole, newlines and all, as part of the line being edited.
  static unsigned char on_paste(EditLine* edit, int) {
    std::string text;
    char byte;
    while (!text.ends_with(kPasteEnd) && el_getc(edit, &byte) == 1) text += byte == '\r' ? '\n' : byte;
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    while (text.ends_with('\n')) text.pop_back();
    const std::string safe = without_controls(text);
    if (safe.empty()) return CC_NORM;
    return el_insertstr(edit, safe.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  void open() {
    use_utf8_locale();
    edit = el_init("lily", stdin, stdout, stderr);
    if (edit == nullptr) return;
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT_ESC, &Impl::show_prompt, kPromptEscape);
    el_set(edit, EL_EDITOR, "emacs");
    // Ctrl-C arrives as a key while a line is edited, so that it can drop the line and nothing else.
    el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit, EL_ADDFN, "lily-interrupt", "drop the line", &Impl::on_interrupt);
    el_set(edit, EL_ADDFN, "lily-newline", "insert a newline", &Impl::on_newline_key);
    el_set(edit, EL_ADDFN, "lily-paste", "insert pasted text", &Impl::on_paste);
    el_set(edit, EL_BIND, "^C", "lily-interrupt", nullptr);
    // A Ctrl-D typed before the terminal was in raw mode: Linux hands it on as NUL.
    el_set(edit, EL_ADDFN, "lily-early-end", "end on an empty line", &Impl::on_early_end);
    el_set(edit, EL_BIND, "^@", "lily-early-end", nullptr);
    el_set(edit, EL_BIND, "\\e^M", "lily-newline", nullptr);
    el_set(edit, EL_BIND, "\\e^J", "lily-newline", nullptr);
    el_set(edit, EL_BIND, "\\e[200~", "lily-paste", nullptr);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    open_history();
  }

  void open_history() {
    history = history_init();
    if (history == nullptr) return;
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (!history_file.empty()) ::history(history, &event, H_LOAD, history_file.c_str());
    el_set(edit, EL_HIST, ::history, history);
  }

  void remember(const std::string& line) {
    if (history == nullptr || line.empty()) return;
    HistEvent event;
    ::history(history, &event, H_ENTER, line.c_str());
    if (history_file.empty()) return;
    const mode_t before = umask(077);  // what was asked is nobody else's business
    ::history(history, &event, H_SAVE, history_file.c_str());
    umask(before);
  }

  Outcome read_edited(std::string& line) {
    interrupted = false;
    el_set(edit, EL_PREP_TERM, 1);  // before the prompt shows: keys typed at once are keys, too
    std::fputs(kPasteOn, stdout);
    std::fflush(stdout);
    int count = 0;
    began = std::chrono::steady_clock::now();
    const char* text = el_gets(edit, &count);
    if (text != nullptr && count > 0) line.assign(text, static_cast<std::size_t>(count));
    std::fputs(kPasteOff, stdout);
    std::fflush(stdout);
    if (interrupted) return Outcome::Interrupted;
    if (text == nullptr || count <= 0) return Outcome::End;
    if (line.ends_with('\n')) line.pop_back();
    remember(line);
    return Outcome::Line;
  }

  Outcome read_plain(std::string& line) {
    int c;
    while ((c = std::getc(stdin)) != EOF && c != '\n') line += static_cast<char>(c);
    if (InterruptGuard::interrupted()) return Outcome::Interrupted;
    return c == EOF && line.empty() ? Outcome::End : Outcome::Line;
  }
};

LineEditor::LineEditor(std::string history_file) : impl_(std::make_unique<Impl>()) {
  impl_->history_file = std::move(history_file);
  if (is_terminal(stdin) && is_terminal(stdout)) impl_->open();
}

LineEditor::~LineEditor() {
  if (impl_->history != nullptr) history_end(impl_->history);
  if (impl_->edit != nullptr) el_end(impl_->edit);
}

LineEditor::Outcome LineEditor::read(const std::string& prompt, std::string& line) {
  line.clear();
  if (impl_->edit == nullptr) return impl_->read_plain(line);
  impl_->prompt.clear();
  for (std::size_t i = 0; i < prompt.size(); ++i) {  // put escape sequences between marks
    if (prompt[i] != '\x1b') {
      impl_->prompt += prompt[i];
      continue;
    }
    const std::size_t end = prompt.find('m', i);
    impl_->prompt += kPromptEscape + prompt.substr(i, end - i + 1) + kPromptEscape;
    i = end;
  }
  return impl_->read_edited(line);
}

std::string default_history_file() {
  if (const char* chosen = std::getenv("LILY_HISTORY")) return chosen;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && *state != '\0') {
    folder = state;
  } else if (home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".local/state";
  } else {
    return {};
  }
  folder /= "lily";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? std::string() : (folder / "history").string();
}

}  // namespace lily::apps
