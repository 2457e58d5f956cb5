// Only runs that can change are normalised: code points marked unsafe, together with the starter before them when it
// is open to them. Everything else is copied. The marks come from the engine that the vocabulary was
// made with, so utf8proc, whatever its Unicode version, sees only characters whose data that engine shares.
#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace lily {

namespace {

std::uint8_t combining_class(std::int32_t code_point) {
  return static_cast<std::uint8_t>(utf8proc_get_property(code_point)->combining_class);
}

// Stable sort of each run of non-starters by combining class. utf8proc's own reordering is quadratic.
void reorder_marks(std::vector<std::int32_t>& code_points) {
  const auto is_mark = [](std::int32_t c) { return combining_class(c) != 0; };
  auto begin = code_points.begin();
  while ((begin = std::find_if(begin, code_points.end(), is_mark)) != code_points.end()) {
    const auto end = std::find_if_not(begin, code_points.end(), is_mark);
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

class RunNormalizer {
 public:
  void append(std::string& out, std::string_view run) {
    code_points_.clear();
    for (std::size_t i = 0; i < run.size();) decompose(utf8::next(run, i));
    reorder_marks(code_points_);
    const auto length =
        utf8proc_normalize_utf32(code_points_.data(), static_cast<utf8proc_ssize_t>(code_points_.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    LILY_CHECK(length >= 0);
    for (utf8proc_ssize_t i = 0; i < length; ++i) {
      utf8::append(out, static_cast<char32_t>(code_points_[static_cast<std::size_t>(i)]));
    }
  }

 private:
  void decompose(char32_t c) {
    std::array<std::int32_t, 8> parts;  // the longest canonical decomposition has 4
    int boundary_class = 0;
    const auto n =
        utf8proc_decompose_char(static_cast<std::int32_t>(c), parts.data(), parts.size(),
                                static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary_class);
    LILY_CHECK(n > 0 && n <= static_cast<utf8proc_ssize_t>(parts.size()));
    code_points_.insert(code_points_.end(), parts.begin(), parts.begin() + n);
  }

  std::vector<std::int32_t> code_points_;
};

}  // namespace

std::string_view nfc(std::string_view text, std::string& buffer) {
  const std::uint8_t* properties = unicode::properties();
  RunNormalizer normalizer;
  std::size_t copied = 0;  // bytes of text that are already in the buffer
  bool changed = false;
  std::size_t previous = 0;  // where the last safe character starts
  bool previous_is_open = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t start = i;
    const std::uint8_t p = properties[utf8::next(text, i)];
    if ((p & unicode::kNfcUnsafe) == 0) {
      previous = start;
      previous_is_open = (p & unicode::kNfcOpen) != 0;
      continue;
    }
    std::size_t end = i;
    for (std::size_t next = i; next < text.size(); end = next) {
      if ((properties[utf8::next(text, next)] & unicode::kNfcUnsafe) == 0) break;
    }
    if (!changed) buffer.clear();
    changed = true;
    const std::size_t run = previous_is_open ? previous : start;
    buffer.append(text, copied, run - copied);
    normalizer.append(buffer, text.substr(run, end - run));
    copied = i = end;
    previous_is_open = false;
  }
  if (!changed) return text;
  buffer.append(text, copied);
  return buffer;
}

}  // namespace lily
