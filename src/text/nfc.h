// Unicode normalisation form C, as HF tokenizers computes it.
#pragma once

#include <string>
#include <string_view>

namespace lily {

// The NFC form of valid UTF-8: `text` itself when nothing changes (the usual case, found by one scan), else a view of
// `buffer`. Linear in the text, also for long runs of combining marks.
std::string_view nfc(std::string_view text, std::string& buffer);

}  // namespace lily
