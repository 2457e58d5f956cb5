// The quantiser against its definition: edge cases of the format, and the properties that hold for every group.
#include "tensor/affine4.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace lily {
namespace {

struct Quantised {
  float scale, bias;
  std::array<std::uint8_t, kGroupSize> codes;
  float value(int i) const { return scale * static_cast<float>(codes[static_cast<std::size_t>(i)]) + bias; }
};

Quantised quantise(const std::array<float, kGroupSize>& values, int bits) {
  Quantised q{};
  const AffineGroup group = affine_quantize_group(values, bits, q.codes);
  q.scale = bf16_to_float(group.scale);
  q.bias = bf16_to_float(group.bias);
  return q;
}

std::array<float, kGroupSize> filled(float value) {
  std::array<float, kGroupSize> values;
  values.fill(value);
  return values;
}

TEST(Affine, ZerosBecomeZeros) {
  for (const float tiny : {0.0f, -0.0f, 1e-9f, 0x1p-123f, -0x1p-123f}) {
    const Quantised q = quantise(filled(tiny), 4);
    EXPECT_EQ(std::fabs(q.scale), bf16_to_float(float_to_bf16(1e-7f)));
    EXPECT_EQ(q.bias, 0.0f);
    for (int i = 0; i < kGroupSize; ++i) EXPECT_EQ(q.value(i), 0.0f);
  }
}

TEST(Affine, ConstantsKeepTheirValue) {
  for (const float c : {0.75f, -0.75f, 3.0f, -1024.0f}) {
    const Quantised q = quantise(filled(c), 4);
    EXPECT_EQ(q.bias, c);
    for (int i = 0; i < kGroupSize; ++i) EXPECT_EQ(q.codes[static_cast<std::size_t>(i)], 0);
  }
}

TEST(Affine, TheLargerEndIsExactAndDecidesTheSign) {
  std::array<float, kGroupSize> values{};
  values[5] = -3.0f;
  values[9] = 1.5f;
  const Quantised low = quantise(values, 4);
  EXPECT_GT(low.scale, 0.0f);
  EXPECT_EQ(low.value(5), -3.0f);
  EXPECT_NEAR(low.value(0), 0.0f, 0.02f);  // zero falls on a code, up to the rounding of scale and bias
  values[9] = 4.5f;
  const Quantised high = quantise(values, 4);
  EXPECT_LT(high.scale, 0.0f);
  EXPECT_EQ(high.value(9), 4.5f);
  EXPECT_EQ(high.codes[9], 0);
}

TEST(Affine, AllNegativeGroupUsesItsTrueMaximum) {
  std::array<float, kGroupSize> values;
  for (int i = 0; i < kGroupSize; ++i) values[static_cast<std::size_t>(i)] = -2.0f - static_cast<float>(i) / 63.0f;
  const Quantised q = quantise(values, 8);
  EXPECT_NEAR(q.scale, 1.0f / 255.0f, 1e-4f);
  for (int i = 0; i < kGroupSize; ++i) EXPECT_NEAR(q.value(i), values[static_cast<std::size_t>(i)], 0.02f);
}

TEST(Affine, TiesGoToTheEvenCode) {
  // Steps of one from -8 (code 0) to 7 (code 15): a value halfway between two codes takes the even one.
  std::array<float, kGroupSize> values{};
  values[0] = -8.0f;
  values[1] = 7.0f;
  values[2] = -7.5f;
  values[3] = -6.5f;
  const Quantised q = quantise(values, 4);
  EXPECT_EQ(q.scale, 1.0f);
  EXPECT_EQ(q.codes[2], 0);
  EXPECT_EQ(q.codes[3], 2);
}

TEST(Affine, ErrorIsBoundedByHalfAStep) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (const int bits : {4, 8}) {
    for (int round = 0; round < 200; ++round) {
      std::array<float, kGroupSize> values;
      for (float& value : values) value = normal(random);
      const Quantised q = quantise(values, bits);
      // Half a step, the end that is not exact, and the rounding of scale and bias to BF16.
      const float bound = std::fabs(q.scale) * 1.01f + std::fabs(q.bias) * 0x1p-7f;
      for (int i = 0; i < kGroupSize; ++i)
        EXPECT_LE(std::fabs(q.value(i) - values[static_cast<std::size_t>(i)]), bound);
    }
  }
}

TEST(Affine, PackingPutsTheFirstCodeLowest) {
  const std::array<std::uint8_t, 8> codes{1, 2, 3, 4, 5, 6, 7, 8};
  std::array<std::byte, 4> four;
  affine_pack(codes, 4, four);
  std::uint32_t word;
  std::memcpy(&word, four.data(), 4);
  EXPECT_EQ(word, 0x87654321u);
  std::array<std::byte, 8> eight;
  affine_pack(codes, 8, eight);
  std::memcpy(&word, eight.data(), 4);
  EXPECT_EQ(word, 0x04030201u);
  std::array<std::uint8_t, 8> back;
  affine_unpack(four, 4, back);
  EXPECT_EQ(back, codes);
  affine_unpack(eight, 8, back);
  EXPECT_EQ(back, codes);
}

TEST(Affine, RowsOfAnUnalignedStackedView) {
  constexpr std::int64_t kExperts = 2, kOut = 3, kIn = 128, kGroups = kIn / kGroupSize;
  for (const int bits : {4, 8}) {
    const std::size_t row_bytes = static_cast<std::size_t>(kIn * bits / 8);
    const std::size_t n_rows = kExperts * kOut;
    std::vector<std::byte> weight(1 + n_rows * row_bytes);  // data begins at an odd address
    std::vector<std::uint16_t> scales(n_rows * kGroups), biases(n_rows * kGroups);
    std::vector<float> values(static_cast<std::size_t>(kIn));
    for (std::size_t r = 0; r < n_rows; ++r) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(r) + static_cast<float>(i % 16) / 16.0f;
      affine_quantize_row(values, bits, std::span(weight).subspan(1 + r * row_bytes, row_bytes),
                          std::span(scales).subspan(r * kGroups, kGroups),
                          std::span(biases).subspan(r * kGroups, kGroups));
    }
    AffineView view{
        .bits = bits, .n_experts = kExperts, .out = kOut, .in = kIn, .weight = {}, .scales = {}, .biases = {}};
    view.weight = {.dtype = Dtype::U32,
                   .rank = 3,
                   .dims = {kExperts, kOut, kIn * bits / 32},
                   .data = weight.data() + 1,
                   .bytes = weight.size() - 1};
    view.scales = {.dtype = Dtype::BF16,
                   .rank = 3,
                   .dims = {kExperts, kOut, kGroups},
                   .data = reinterpret_cast<const std::byte*>(scales.data()),
                   .bytes = 2 * scales.size()};
    view.biases = view.scales;
    view.biases.data = reinterpret_cast<const std::byte*>(biases.data());
    std::vector<float> row(static_cast<std::size_t>(kIn));
    affine_dequantize_row(view, 1, 2, row);
    for (std::size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], 5.0f + static_cast<float>(i % 16) / 16.0f, 0.1f);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);             // tie, even below
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);         // tie, even above
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);  // just above a tie
  EXPECT_EQ(float_to_bf16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bf16(3.4e38f), 0x7f80);  // overflows to infinity
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::nanf("")))));
}

}  // namespace
}  // namespace lily
