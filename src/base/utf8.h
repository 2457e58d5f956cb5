// UTF-8 at the byte level: reading, writing, checking and repairing. Nothing here knows what a code point means.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lily::utf8 {

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementBytes = "\xEF\xBF\xBD";

// The length of the well-formed character at the start of `text` (1..4), or minus the length of the longest prefix
// that is wrong (-1..-3: one replacement character stands for it, as in the Unicode standard's "maximal subpart").
// `truncated` is set when that wrong prefix is the whole text and further bytes could still complete it.
int scan(std::string_view text, bool* truncated = nullptr);

// The character at `position` of text that is known to be valid; moves `position` behind it.
char32_t next(std::string_view valid_text, std::size_t& position);

void append(std::string& out, char32_t code_point);

bool is_valid(std::string_view text);

// Appends `text` with every wrong sequence replaced by U+FFFD.
void append_repaired(std::string& out, std::string_view text);

}  // namespace lily::utf8
