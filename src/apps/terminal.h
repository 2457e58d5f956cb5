// What the interactive commands need of the terminal: whether there is one, colours, Ctrl-C, and text made safe to
// show.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace lily::apps {

// Escape sequences, empty where they are not wanted: not a terminal, TERM=dumb, or NO_COLOR set.
struct Style {
  std::string dim, bold, accent, reset;
};
Style style_for(std::FILE* stream);
bool is_terminal(std::FILE* stream);

// What a model writes may contain anything. On a terminal, control characters other than newline and tab are dropped,
// so that no text can move the cursor, set the title or answer queries. `text` is valid UTF-8.
std::string without_controls(std::string_view text);

// While one lives, Ctrl-C is remembered instead of ending the program.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool interrupted();
  static void clear();
};

}  // namespace lily::apps
