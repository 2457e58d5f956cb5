// Perplexity, agreement and KL against values worked out by hand.
#include "apps/eval_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lily::apps {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST(Perplexity, IsTheInverseProbabilityOfTheTrueToken) {
  Perplexity perplexity;
  perplexity.add(logs({0.5, 0.25, 0.25}), 1);
  EXPECT_NEAR(perplexity.value(), 4.0, 1e-6);
  perplexity.add(logs({0.5, 0.25, 0.25}), 0);
  EXPECT_NEAR(perplexity.value(), std::sqrt(8.0), 1e-6);
}

TEST(Perplexity, IgnoresMaskedRowsAndAShiftOfAllLogits) {
  Perplexity perplexity;
  perplexity.add(std::vector<float>{1000.0f, 1000.0f, kMasked}, 0);
  EXPECT_NEAR(perplexity.value(), 2.0, 1e-6);
}

TEST(Comparison, OfEqualLogitsIsPerfect) {
  Comparison comparison;
  const auto row = logs({0.7, 0.2, 0.1});
  comparison.add(0, row, row);
  EXPECT_EQ(comparison.agreement(), 1.0);
  EXPECT_EQ(comparison.mean_kl(), 0.0);
  EXPECT_EQ(comparison.rms_difference(), 0.0);
}

TEST(Comparison, GivesTheDivergenceFromTheReference) {
  Comparison comparison;
  comparison.add(0, logs({0.5, 0.5}), logs({0.75, 0.25}));
  EXPECT_NEAR(comparison.mean_kl(), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-6);
}

TEST(Comparison, ReportsADisagreementWithItsMargin) {
  Comparison comparison;
  const std::vector<float> reference{1.0f, 3.0f, 2.5f};
  const std::vector<float> own{1.0f, 2.0f, 2.25f};
  comparison.add(7, reference, own);
  comparison.add(8, reference, reference);
  ASSERT_EQ(comparison.disagreements().size(), 1u);
  EXPECT_EQ(comparison.disagreements()[0].position, 7);
  EXPECT_EQ(comparison.disagreements()[0].reference, 1);
  EXPECT_EQ(comparison.disagreements()[0].own, 2);
  EXPECT_FLOAT_EQ(static_cast<float>(comparison.largest_margin()), 0.5f);
  EXPECT_EQ(comparison.agreement(), 0.5);
}

TEST(Comparison, AShiftOfAllLogitsIsNoDifference) {
  Comparison comparison;
  comparison.add(0, std::vector<float>{1, 2, 3, kMasked}, std::vector<float>{11, 12, 13, kMasked});
  EXPECT_NEAR(comparison.mean_kl(), 0.0, 1e-12);
  EXPECT_NEAR(comparison.rms_difference(), 0.0, 1e-6);
}

TEST(BestToken, TiesGoToTheLowerId) {
  EXPECT_EQ(best_token(std::vector<float>{1, 5, 5, kMasked}), 1);
}

}  // namespace
}  // namespace lily::apps
