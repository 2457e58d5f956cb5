// Messages may quote anything; what leaves here is valid UTF-8 on one line.
#include "base/quote.h"

#include <fmt/format.h>

#include <iterator>

#include "base/utf8.h"

namespace lily {
std::string quote(std::string_view text, std::size_t max_bytes) {
  std::string out(1, '"');
  std::size_t i = 0;
  while (i < text.size() && i < max_bytes) {
    const auto c = static_cast<unsigned char>(text[i]);
    const int n = utf8::scan(text.substr(i));
    if (n < 0 || c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
      ++i;
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += text.substr(i, static_cast<std::size_t>(n));
    i += static_cast<std::size_t>(n);
  }
  out += '"';
  if (i < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

std::string with_commas(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t i = digits.size(); i > 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kUnits[unit]);
}

}  // namespace lily
