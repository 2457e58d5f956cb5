// What the pre-tokenizer and the normaliser need to know of each code point: one byte, from a generated table that
// agrees with HF tokenizers over all of Unicode (tools/unicode/make_tables.py).
#pragma once

#include <cstdint>

namespace lily::unicode {

enum : std::uint8_t {
  kOther = 0,
  kLetter = 1,  // \p{L}
  kMark = 2,    // \p{M}
  kNumber = 3,  // \p{N}
  kSpace = 4,   // \s
  kClassMask = 7,
  kNfcUnsafe =
      8,  // NFC may change it or move it: combining class not 0, not its own NFC, or second of a pair that composes
  kNfcOpen = 16,  // a mark behind it may change it: first of a pair that composes, or made of such a one
};

// Properties of all code points, indexed by code point up to 0x10FFFF.
const std::uint8_t* properties();

}  // namespace lily::unicode
