// Lines from a person: editing and history through libedit on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lily::apps {

class LineEditor {
 public:
  enum class Outcome : std::uint8_t {
    Line,         // `line` holds it, without its newline; a pasted text may have several lines
    Interrupted,  // Ctrl-C: the line was thrown away
    End           // Ctrl-D on an empty line, or the end of the input
  };

  // history_file: where earlier lines come from and go to; empty: nowhere.
  explicit LineEditor(std::string history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // prompt: may hold colours, but not at its end; shown on a terminal only.
  Outcome read(const std::string& prompt, std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// $XDG_STATE_HOME/lily/history, its folder made; empty if there is no home, or if LILY_HISTORY is set but empty.
std::string default_history_file();

}  // namespace lily::apps
