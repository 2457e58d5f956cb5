// Quantised matrices: every element as the definition says, products against double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/ref/affine_linear.h"
#include "ops/affine_linear.h"
#include "support/random_weights.h"

namespace lily {
namespace {

using testing::random_floats;
using testing::RandomWeights;

class LinearTest : public ::testing::TestWithParam<int> {
 protected:
  RandomWeights source_{testing::kSmallShape};
};

TEST_P(LinearTest, RowsAreScaleTimesCodePlusBias) {
  const AffineView view = source_.affine(GetParam(), 3, 5, 192);
  for (bool keep : {false, true}) {
    const ref::AffineMatrix matrix(view, keep);
    std::vector<float> values(192);
    for (std::int64_t r = 0; r < 15; ++r) {
      matrix.row(r, values);
      for (std::int64_t i = 0; i < 192; ++i)
        ASSERT_EQ(values[static_cast<std::size_t>(i)], ops::affine_value(view, r / 5, r % 5, i)) << r << ' ' << i;
    }
  }
}

TEST_P(LinearTest, ProductsMatchDouble) {
  const AffineView view = source_.affine(GetParam(), 2, 7, 320);
  const std::vector<float> x = random_floats(4 * 320, 2);
  for (bool keep : {false, true}) {
    const ref::AffineMatrix matrix(view, keep);
    std::vector<float> got(4 * 7), want(got.size());
    matrix.apply(x, got, 1);
    for (std::int64_t t = 0; t < 4; ++t)
      for (std::int64_t o = 0; o < 7; ++o) {
        double sum = 0;
        for (std::int64_t i = 0; i < 320; ++i)
          sum += double{ops::affine_value(view, 1, o, i)} * double{x[static_cast<std::size_t>(t * 320 + i)]};
        want[static_cast<std::size_t>(t * 7 + o)] = static_cast<float>(sum);
      }
    EXPECT_LE(ops::tolerance_used(got, want, ops::kLinearTolerance), 1.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, LinearTest, ::testing::Values(4, 8), ::testing::PrintToStringParamName());

// Element 8m + i of a row lies in bits 4i..4i+3 of word m; scales may be negative.
TEST(Linear, NibbleOrderByHand) {
  std::vector<std::byte> codes(32, std::byte{0}), scales(2), biases(2);
  codes[0] = std::byte{0x21};
  codes[1] = std::byte{0xf3};
  const std::uint16_t scale = float_to_bf16(-0.5f), bias = float_to_bf16(2.0f);
  std::memcpy(scales.data(), &scale, 2);
  std::memcpy(biases.data(), &bias, 2);
  AffineView view{.bits = 4, .n_experts = 1, .out = 1, .in = 64, .weight = {}, .scales = {}, .biases = {}};
  view.weight = {.dtype = Dtype::U32, .rank = 2, .dims = {1, 8}, .data = codes.data(), .bytes = 32};
  view.scales = {.dtype = Dtype::BF16, .rank = 2, .dims = {1, 1}, .data = scales.data(), .bytes = 2};
  view.biases = {.dtype = Dtype::BF16, .rank = 2, .dims = {1, 1}, .data = biases.data(), .bytes = 2};
  std::vector<float> values(64);
  ref::AffineMatrix(view, false).row(0, values);
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], 1.0f);
  EXPECT_EQ(values[2], 0.5f);
  EXPECT_EQ(values[3], -5.5f);
  EXPECT_EQ(values[4], 2.0f);
}

TEST(ToleranceTest, CountsNanAndSizeAsFailures) {
  const float nan = std::nanf("");
  const std::vector<float> one{1.0f}, near{1.00001f}, bad{nan};
  EXPECT_LE(ops::tolerance_used(near, one, ops::kFloat32), 1.0);
  EXPECT_GT(ops::tolerance_used(near, one, ops::kExact), 1.0);
  EXPECT_EQ(ops::tolerance_used(one, one, ops::kExact), 0.0);
  EXPECT_GT(ops::tolerance_used(bad, one, ops::kBfloat16), 1.0);
  EXPECT_LE(ops::tolerance_used(bad, bad, ops::kExact), 1.0);
  EXPECT_GT(ops::tolerance_used({}, one, ops::kBfloat16), 1.0);
}

}  // namespace
}  // namespace lily
