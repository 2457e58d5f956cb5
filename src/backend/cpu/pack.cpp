// Repacking. A file's word holds inputs 8 m .. 8 m + 7 of one row, lowest nibble first; a block's dword holds the same
// eight nibbles with the first four in the low halves of its bytes. So a word moves as a whole.
#include "backend/cpu/pack.h"

#include <cstring>

#include "base/check.h"

namespace lily::cpu {

namespace {

// 0x0000dcba -> 0x0d0c0b0a
constexpr std::uint32_t spread_nibbles(std::uint32_t x) {
  x = (x | (x << 8)) & 0x00ff00ffu;
  return (x | (x << 4)) & 0x0f0f0f0fu;
}

constexpr std::uint32_t pair_nibbles(std::uint32_t word) {
  return spread_nibbles(word & 0xffffu) | (spread_nibbles(word >> 16) << 4);
}
static_assert(pair_nibbles(0x76543210u) == 0x73625140u);

// Scales and biases of one lane into its blocks.
void pack_parameters(const AffineView& from, std::int64_t row, int lane, int codes_bytes, std::byte* to) {
  const std::int64_t n_groups = from.in / kGroupSize;
  const std::byte* scales = from.scales.data + row * n_groups * 2;
  const std::byte* biases = from.biases.data + row * n_groups * 2;
  std::byte* target = to + codes_bytes + 2 * lane;
  for (std::int64_t g = 0; g < n_groups; ++g, target += codes_bytes + 4 * kLanes) {
    std::memcpy(target, scales + 2 * g, 2);
    std::memcpy(target + 2 * kLanes, biases + 2 * g, 2);
  }
}

}  // namespace

void pack_stripe4(const AffineView& from, std::int64_t expert, std::int64_t first_row, int n_rows, std::byte* to) {
  LILY_CHECK(from.bits == 4 && n_rows <= kLanes);
  const std::int64_t n_groups = from.in / kGroupSize;
  if (n_rows < kLanes) std::memset(to, 0, static_cast<std::size_t>(n_groups) * kBlock4Bytes);
  for (int lane = 0; lane < n_rows; ++lane) {
    const std::int64_t row = expert * from.out + first_row + lane;
    const std::byte* source = from.weight.data + row * (from.in / 2);
    std::byte* target = to + 4 * lane;
    for (std::int64_t g = 0; g < n_groups; ++g, source += 32, target += kBlock4Bytes)
      for (int j = 0; j < 8; ++j) {
        std::uint32_t word;
        std::memcpy(&word, source + 4 * j, sizeof word);
        word = pair_nibbles(word);
        std::memcpy(target + 64 * j, &word, sizeof word);
      }
    pack_parameters(from, row, lane, kBlock4Codes, to);
  }
}

void pack_stripe8(const AffineView& from, std::int64_t expert, std::int64_t first_row, int n_rows, std::byte* to) {
  LILY_CHECK((from.bits == 8 || from.bits == 4) && n_rows <= kLanes);
  const std::int64_t n_groups = from.in / kGroupSize;
  if (n_rows < kLanes) std::memset(to, 0, static_cast<std::size_t>(n_groups) * kBlock8Bytes);
  for (int lane = 0; lane < n_rows; ++lane) {
    const std::int64_t row = expert * from.out + first_row + lane;
    const std::byte* source = from.weight.data + row * (from.in * from.bits / 8);
    for (std::int64_t i = 0; i < from.in; ++i) {
      const std::byte code =
          from.bits == 8 ? source[i] : (source[i / 2] >> (4 * static_cast<int>(i & 1))) & std::byte{15};
      const std::int64_t g = i / kGroupSize, k = i % kGroupSize;
      to[g * kBlock8Bytes + 64 * (k / 4) + 4 * lane + k % 4] = code;
    }
    pack_parameters(from, row, lane, kBlock8Codes, to);
  }
}

void pack_embedding_row(const AffineView& from, std::int64_t row, std::byte* to) {
  LILY_CHECK(from.bits == 4);
  const std::size_t codes = static_cast<std::size_t>(from.in / 2);
  const std::size_t parameters = static_cast<std::size_t>(from.in / kGroupSize) * 2;
  const std::size_t r = static_cast<std::size_t>(row);
  std::memcpy(to, from.weight.data + r * codes, codes);
  std::memcpy(to + codes, from.scales.data + r * parameters, parameters);
  std::memcpy(to + codes + parameters, from.biases.data + r * parameters, parameters);
}

}  // namespace lily::cpu
