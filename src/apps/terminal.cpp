#include "apps/terminal.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace lily::apps {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;
struct sigaction previous_action;

void on_interrupt(int) {
  interrupt_seen = 1;
}

bool wants_colour(std::FILE* stream) {
  if (!is_terminal(stream)) return false;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return (no_color == nullptr || *no_color == '\0') && term != nullptr && std::strcmp(term, "dumb") != 0;
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  return isatty(fileno(stream)) == 1;
}

Style style_for(std::FILE* stream) {
  if (!wants_colour(stream)) return {};
  return {.dim = "\x1b[2m", .bold = "\x1b[1m", .accent = "\x1b[36m", .reset = "\x1b[0m"};
}

std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0x7f || (byte < 0x20 && byte != '\n' && byte != '\t')) continue;
    const bool c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c1) {  // U+0080..U+009F, some of which terminals obey like escape sequences
      ++i;
      continue;
    }
    out += text[i];
  }
  return out;
}

InterruptGuard::InterruptGuard() {
  clear();
  struct sigaction action{};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a blocked read returns
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_action);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_action, nullptr);
}

bool InterruptGuard::interrupted() {
  return interrupt_seen != 0;
}
void InterruptGuard::clear() {
  interrupt_seen = 0;
}

}  // namespace lily::apps
