// UTF-8 decoding after table 3-7 of the Unicode standard: the second byte's range depends on the first.
#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace lily::utf8 {

namespace {

std::size_t ascii_prefix(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

int scan(std::string_view text, bool* truncated) {
  if (truncated != nullptr) *truncated = false;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) == text.size()) {
      if (truncated != nullptr) *truncated = true;
      return -i;
    }
    if (byte(i) < low || byte(i) > high) return -i;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

char32_t next(std::string_view valid_text, std::size_t& position) {
  const auto* p = reinterpret_cast<const unsigned char*>(valid_text.data()) + position;
  if (p[0] < 0x80) {
    position += 1;
    return p[0];
  }
  if (p[0] < 0xE0) {
    position += 2;
    return static_cast<char32_t>((p[0] & 0x1F) << 6 | (p[1] & 0x3F));
  }
  if (p[0] < 0xF0) {
    position += 3;
    return static_cast<char32_t>((p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F));
  }
  position += 4;
  return static_cast<char32_t>((p[0] & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 | (p[3] & 0x3F));
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool is_valid(std::string_view text) {
  for (;;) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    const int length = scan(text);
    if (length < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(length));
  }
}

void append_repaired(std::string& out, std::string_view text) {
  while (!text.empty()) {
    std::size_t good = ascii_prefix(text);
    int length = 1;
    while (good < text.size() && (length = scan(text.substr(good))) > 0) good += static_cast<std::size_t>(length);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return;
    out += kReplacementBytes;
    text.remove_prefix(static_cast<std::size_t>(-length));
  }
}

}  // namespace lily::utf8
