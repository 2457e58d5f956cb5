// Norms, rotation and attention against the formulas in double.
#include "backend/ref/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/ref/rms_norm.h"
#include "backend/ref/rope.h"
#include "model/shape.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "support/random_weights.h"
#include "tensor/view.h"

namespace lily {
namespace {

using testing::random_floats;

TEST(RmsNorm, MatchesDouble) {
  for (float range : {1e-6f, 1.0f, 1e4f}) {
    const auto x = random_floats(256, 1, range), weight = random_floats(256, 2);
    std::vector<float> got(256), want(256);
    ref::rms_norm(x, weight, got);
    double mean = 0;
    for (float v : x) mean += double{v} * double{v} / 256;
    for (std::size_t i = 0; i < 256; ++i)
      want[i] = static_cast<float>(double{x[i]} / std::sqrt(mean + 1e-6) * double{weight[i]});
    EXPECT_LE(ops::tolerance_used(got, want, ops::kRmsNormTolerance), 1.0) << range;
  }
  std::vector<float> zero(256, 0.0f);
  ref::rms_norm(zero, random_floats(256, 2), zero);
  EXPECT_EQ(zero[0], 0.0f);
}

// The epsilon is 1e-6 on the sum of squares: a variant with 128e-6 would give 0.66 of this at a sum of 1e-4.
TEST(L2Norm, SmallVectorsShowTheEpsilon) {
  std::vector<float> x(128, static_cast<float>(std::sqrt(1e-4 / 128)));
  const double want = double{x[0]} / std::sqrt(1e-4 + 1e-6);
  ref::l2_norm(x, 1.0);
  EXPECT_NEAR(x[5], want, 1e-6);
}

TEST(Rope, RotatesHalfSplitPairsAndLeavesTheRest) {
  for (std::int64_t position : {0, 1, 4095, 262143}) {
    std::vector<float> cos(32), sin(32);
    ops::rope_cos_sin(position, kRopeTheta, cos, sin);
    auto head = random_floats(256, 4);
    const auto before = head;
    ref::rope(head, cos, sin);
    for (std::size_t j = 0; j < 32; ++j) {
      const double angle = static_cast<double>(position) * std::pow(1e7, -2.0 * static_cast<double>(j) / 64);
      EXPECT_NEAR(head[j], before[j] * std::cos(angle) - before[j + 32] * std::sin(angle), 1e-6) << position;
      EXPECT_NEAR(head[j + 32], before[j + 32] * std::cos(angle) + before[j] * std::sin(angle), 1e-6) << position;
    }
    for (std::size_t j = 64; j < 256; ++j) EXPECT_EQ(head[j], before[j]);
  }
}

struct AttentionCase {
  ops::AttentionHeads heads{16, 2, 256};
  std::vector<float> q, gate;
  std::vector<std::uint16_t> keys, values;

  AttentionCase(std::size_t n, float range)
      : q(random_floats(16 * 256, n, range)), gate(random_floats(16 * 256, n + 1, 3.0f)) {
    for (float v : random_floats(n * 512, n + 2, range)) keys.push_back(float_to_bf16(v));
    for (float v : random_floats(n * 512, n + 3)) values.push_back(float_to_bf16(v));
  }
  std::vector<float> run() const {
    std::vector<float> out(q.size());
    ref::attention(heads, q, gate, keys, values, out);
    return out;
  }
  std::vector<float> naive() const {
    const std::size_t n = keys.size() / 512;
    std::vector<float> out;
    for (std::size_t a = 0; a < 16; ++a) {
      std::vector<double> p(n);
      double highest = -HUGE_VAL, sum = 0;
      for (std::size_t s = 0; s < n; ++s) {
        for (std::size_t i = 0; i < 256; ++i)
          p[s] += double{q[a * 256 + i]} * double{bf16_to_float(keys[s * 512 + a / 8 * 256 + i])} / 16.0;
        highest = std::max(highest, p[s]);
      }
      for (double& v : p) sum += v = std::exp(v - highest);
      for (std::size_t i = 0; i < 256; ++i) {
        double o = 0;
        for (std::size_t s = 0; s < n; ++s) o += p[s] / sum * double{bf16_to_float(values[s * 512 + a / 8 * 256 + i])};
        out.push_back(static_cast<float>(o / (1 + std::exp(-double{gate[a * 256 + i]}))));
      }
    }
    return out;
  }
};

TEST(Attention, MatchesNaiveSoftmaxInDouble) {
  for (std::size_t n : {1, 2, 3, 63, 64, 65, 700}) {
    const AttentionCase c(n, 1.5f);
    EXPECT_LE(ops::tolerance_used(c.run(), c.naive(), ops::kAttentionTolerance), 1.0) << n;
  }
}

TEST(Attention, N09LargeScoresDoNotOverflow) {
  const AttentionCase c(65, 60.0f);
  for (float value : c.run()) ASSERT_TRUE(std::isfinite(value));
}

TEST(Attention, N09GateClosesAndOpens) {
  AttentionCase c(5, 1.0f);
  for (std::size_t i = 0; i < c.gate.size(); ++i) c.gate[i] = i % 2 ? 30.0f : -200.0f;
  const auto gated = c.run();
  c.gate.assign(c.gate.size(), 100.0f);
  const auto open = c.run();
  for (std::size_t i = 0; i < gated.size(); ++i) EXPECT_FLOAT_EQ(gated[i], i % 2 ? open[i] : 0.0f);
}

}  // namespace
}  // namespace lily
