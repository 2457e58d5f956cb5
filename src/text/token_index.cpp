#include "text/token_index.h"

#include <bit>
#include <cstring>

namespace lily {

namespace {

std::uint64_t mix(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 32;
}

template <class T>
std::uint64_t load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint64_t hash(std::string_view s) {
  const char* p = s.data();
  std::size_t n = s.size();
  std::uint64_t h = n;
  for (; n > 8; p += 8, n -= 8) h = mix(h ^ load<std::uint64_t>(p));
  if (n >= 4) return mix(mix(h ^ load<std::uint32_t>(p)) ^ load<std::uint32_t>(p + n - 4));
  std::uint64_t tail = 0;
  for (std::size_t i = 0; i < n; ++i) tail = tail << 8 | static_cast<unsigned char>(p[i]);
  return mix(h ^ tail);
}

}  // namespace

TokenIndex::TokenIndex(const std::vector<std::string_view>& tokens) : slots_(std::bit_ceil(2 * tokens.size() + 1)) {
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    if (bytes.empty() || find(bytes)) continue;
    std::size_t i = hash(bytes) & (slots_.size() - 1);
    while (slots_[i].data != nullptr) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {bytes.data(), static_cast<std::uint32_t>(bytes.size()), static_cast<TokenId>(id)};
  }
}

std::optional<TokenId> TokenIndex::find(std::string_view bytes) const {
  for (std::size_t i = hash(bytes) & (slots_.size() - 1); slots_[i].data != nullptr;
       i = (i + 1) & (slots_.size() - 1)) {
    if (std::string_view(slots_[i].data, slots_[i].size) == bytes) return slots_[i].id;
  }
  return std::nullopt;
}

}  // namespace lily
