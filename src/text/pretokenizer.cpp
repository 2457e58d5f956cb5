// The alternatives of the pattern in their order, each as a small scanner; classes from the generated table.
#include "text/pretokenizer.h"

#include <cstdint>

#include "base/utf8.h"
#include "text/unicode.h"

namespace lily {

namespace {

bool is_newline(char c) {
  return c == '\r' || c == '\n';
}

std::uint8_t class_at(std::string_view text, std::size_t& position) {
  static const std::uint8_t* const properties = unicode::properties();
  return properties[utf8::next(text, position)] & unicode::kClassMask;
}

bool is_letter_or_mark(std::uint8_t c) {
  return c == unicode::kLetter || c == unicode::kMark;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) behind the apostrophe at `start`; 0 when there is none. U+017F folds to s.
std::size_t contraction_end(std::string_view text, std::size_t start) {
  const auto lower = [&](std::size_t i) -> char { return i < text.size() ? static_cast<char>(text[i] | 0x20) : '\0'; };
  const std::size_t at = start + 1;
  switch (lower(at)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 1;
    case 'r':
    case 'v':
      return lower(at + 1) == 'e' ? at + 2 : 0;
    case 'l':
      return lower(at + 1) == 'l' ? at + 2 : 0;
    default:
      return text.substr(at).starts_with("\xC5\xBF") ? at + 2 : 0;
  }
}

std::size_t skip_letters_and_marks(std::string_view text, std::size_t position) {
  for (std::size_t next = position; next < text.size(); position = next) {
    if (!is_letter_or_mark(class_at(text, next))) break;
  }
  return position;
}

// [^\s\p{L}\p{M}\p{N}]+[\r\n]* from `position`; the same position back when the first character does not fit.
std::size_t skip_symbols(std::string_view text, std::size_t position) {
  const std::size_t start = position;
  for (std::size_t next = position; next < text.size(); position = next) {
    if (class_at(text, next) != unicode::kOther) break;
  }
  if (position == start) return start;
  while (position < text.size() && is_newline(text[position])) ++position;
  return position;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last newline of the run; else all of a run that ends the text; else all but
// its last character, which goes with what follows.
std::size_t space_end(std::string_view text, std::size_t start) {
  std::size_t end = start;
  std::size_t last = start;  // start of the run's last character
  std::size_t newline_end = start;
  for (std::size_t next = start; next < text.size(); end = next) {
    const std::size_t character = next;
    if (class_at(text, next) != unicode::kSpace) break;
    last = character;
    if (is_newline(text[character])) newline_end = next;
  }
  if (newline_end != start) return newline_end;
  return end == text.size() || last == start ? end : last;
}

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t start) {
  const char lead = text[start];
  if (lead == '\'') {
    if (const std::size_t end = contraction_end(text, start)) return end;
  }
  std::size_t second = start;
  const std::uint8_t first_class = class_at(text, second);
  if (first_class == unicode::kLetter) return skip_letters_and_marks(text, second);
  if (first_class == unicode::kNumber) return second;
  if (!is_newline(lead)) {  // one character of any other kind may lead a word
    const std::size_t end = skip_letters_and_marks(text, second);
    if (end != second || first_class == unicode::kMark) return end;
  }
  const std::size_t symbols = lead == ' ' ? second : start;
  const std::size_t end = skip_symbols(text, symbols);
  return end != symbols ? end : space_end(text, start);
}

}  // namespace lily
