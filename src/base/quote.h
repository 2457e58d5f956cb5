// Untrusted text inside a message: control characters and invalid UTF-8 become escapes, long text is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lily {

// `text` in double quotes, at most `max_bytes` of it. Always valid printable UTF-8 on one line.
std::string quote(std::string_view text, std::size_t max_bytes = 96);

// 1234567 -> "1,234,567".
std::string with_commas(std::uint64_t value);

// 20429169263 -> "20.43 GB" (powers of 1000).
std::string human_bytes(std::uint64_t bytes);

}  // namespace lily
