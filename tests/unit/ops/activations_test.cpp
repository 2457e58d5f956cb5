// Scalar functions at their extremes, and the choice of a token.
#include "ops/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/logits.h"

namespace lily::ops {
namespace {

TEST(Activations, N09SigmoidAndSiluAtTheEnds) {
  EXPECT_FLOAT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_FLOAT_EQ(sigmoid(30.0f), 1.0f);
  EXPECT_NEAR(sigmoid(-30.0f), 9.357623e-14f, 1e-19f);
  EXPECT_EQ(sigmoid(-200.0f), 0.0f);
  EXPECT_EQ(sigmoid(3e38f), 1.0f);
  EXPECT_EQ(silu(-3e38f), 0.0f);
  EXPECT_EQ(silu(3e38f), 3e38f);
  EXPECT_FLOAT_EQ(silu(-1.0f), -0.26894143f);
}

TEST(Activations, N09SoftplusAtTheEnds) {
  EXPECT_DOUBLE_EQ(softplus(0.0), std::log(2.0));
  EXPECT_DOUBLE_EQ(softplus(40.5), 40.5);
  EXPECT_DOUBLE_EQ(softplus(39.5), 39.5);  // both sides of the guard
  EXPECT_NEAR(softplus(-40.0), 4.248354255291589e-18, 1e-30);
  EXPECT_EQ(softplus(1e30), 1e30);
  EXPECT_EQ(softplus(-1e30), 0.0);
}

TEST(Activations, N09DecayIsAlwaysInRange) {
  for (float a : {-1e30f, -200.0f, -40.0f, 0.0f, 40.0f, 200.0f, 1e30f})
    for (float a_log : {-200.0f, -88.0f, -1.0f, 0.0f, 3.0f, 88.0f, 200.0f})
      for (float dt_bias : {-40.0f, 0.0f, 40.0f}) {
        const float decay = std::exp(log_decay(a, a_log, dt_bias));
        EXPECT_GE(decay, 0.0f) << a << ' ' << a_log << ' ' << dt_bias;
        EXPECT_LE(decay, 1.0f) << a << ' ' << a_log << ' ' << dt_bias;
      }
  EXPECT_FLOAT_EQ(log_decay(0.5f, 0.3f, -1.0f), static_cast<float>(-std::exp(0.3) * std::log1p(std::exp(-0.5))));
}

TEST(Logits, GreedyTakesTheLowerIdOfATie) {
  EXPECT_EQ(greedy_token(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(greedy_token(std::vector<float>{-5}), 0);
  EXPECT_EQ(greedy_token(std::vector<float>{-0.0f, 0.0f}), 0);
}

TEST(Logits, N07NanIsNoToken) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(greedy_token(std::vector<float>{nan, 1, 2}), -1);
  EXPECT_EQ(greedy_token(std::vector<float>{1, 2, nan}), -1);
}

TEST(Logits, MaskHidesTheTail) {
  std::vector<float> logits{1, 2, 9, 9};
  mask_unused_rows(logits, 2);
  EXPECT_EQ(greedy_token(logits), 1);
  EXPECT_EQ(logits[3], -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace lily::ops
