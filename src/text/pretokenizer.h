// Cuts text into the pieces inside which BPE merges happen: the Split pattern of Qwen3.5/3.6 as a scanner.
#pragma once

#include <cstddef>
#include <string_view>

namespace lily {

// The pattern that the scanner implements; a tokenizer.json with any other is refused.
inline constexpr std::string_view kSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The end of the piece that starts at `start` (< text.size()) in valid UTF-8. Every piece has at least one character.
std::size_t piece_end(std::string_view text, std::size_t start);

}  // namespace lily
