// Router: which experts, in what order, with what weight.
#include "backend/ref/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace lily {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;

struct Route {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Route route(const std::vector<float>& logits, std::size_t n_active = 8) {
  Route result{std::vector<std::int32_t>(n_active), std::vector<float>(n_active)};
  ref::route(logits, result.ids, result.weights);
  return result;
}

TEST(Router, N01EqualLogitsGiveTheLowestIndices) {
  EXPECT_THAT(route(std::vector<float>(256, 0.5f)).ids, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(route(std::vector<float>(256, 0.5f)).weights, Each(FloatEq(0.125f)));

  std::vector<float> eight(256, 0.0f);
  for (int i : {9, 250, 33, 120, 77, 200, 64, 10}) eight[static_cast<std::size_t>(i)] = 3.0f;
  EXPECT_THAT(route(eight).ids, ElementsAre(9, 10, 33, 64, 77, 120, 200, 250));
}

TEST(Router, N01TieAtTheEdgeOfTheChoice) {
  std::vector<float> logits(256, -1.0f);
  for (int i = 0; i < 7; ++i) logits[static_cast<std::size_t>(100 + i)] = 2.0f + static_cast<float>(i);
  logits[50] = logits[49] = 1.0f;  // ranks 8 and 9
  EXPECT_THAT(route(logits).ids, ElementsAre(106, 105, 104, 103, 102, 101, 100, 49));
}

// The two differ in the last bit of a float32 and are one bfloat16 value: no tie.
TEST(Router, N01FloatBitsDecide) {
  std::vector<float> logits(256, -1.0f);
  for (int i = 0; i < 7; ++i) logits[static_cast<std::size_t>(i)] = 9.0f;
  logits[20] = 1.0f;
  logits[200] = std::nextafter(1.0f, 2.0f);
  EXPECT_EQ(route(logits).ids[7], 200);
}

TEST(Router, N03WinnersAnywhere) {
  std::vector<float> logits(256, 0.0f);
  const std::vector<std::int32_t> winners{255, 128, 127, 32, 31, 0, 129, 254};
  for (std::size_t i = 0; i < winners.size(); ++i)
    logits[static_cast<std::size_t>(winners[i])] = 20.0f - static_cast<float>(i);
  EXPECT_EQ(route(logits).ids, winners);
}

TEST(Router, N03EveryExpertCanBeChosen) {
  std::set<std::int32_t> seen;
  for (std::size_t e = 0; e < 256; ++e) {
    std::vector<float> logits(256, 0.0f);
    logits[e] = 1.0f;
    seen.insert(route(logits).ids[0]);
  }
  EXPECT_EQ(seen.size(), 256u);
}

TEST(Router, WeightsAreTheRenormalisedSoftmax) {
  std::vector<float> logits(32);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7) % 32) * 0.3f;
  const auto [ids, weights] = route(logits);
  double total = 0;
  for (std::int32_t id : ids) total += std::exp(double{logits[static_cast<std::size_t>(id)]});
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_THAT(
        weights[i],
        FloatNear(static_cast<float>(std::exp(double{logits[static_cast<std::size_t>(ids[i])]}) / total), 1e-7f));
  EXPECT_THAT(std::accumulate(weights.begin(), weights.end(), 0.0f), FloatNear(1.0f, 1e-6f));
}

TEST(Router, N09HugeLogitsStayFinite) {
  std::vector<float> logits(256, -3e38f);
  logits[17] = 3e38f;
  const auto [ids, weights] = route(logits);
  EXPECT_EQ(ids[0], 17);
  EXPECT_EQ(weights[0], 1.0f);
  for (float weight : weights) EXPECT_TRUE(std::isfinite(weight));
}

TEST(Router, NanKeepsIdsValidAndReachesTheWeights) {
  std::vector<float> logits(256, 0.0f);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  const auto one = route(logits);
  EXPECT_THAT(one.ids, ElementsAre(0, 1, 2, 4, 5, 6, 7, 8));
  for (float weight : one.weights) EXPECT_TRUE(std::isnan(weight));
  const auto all = route(std::vector<float>(256, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(std::set<std::int32_t>(all.ids.begin(), all.ids.end()).size(), 8u);
  for (float weight : all.weights) EXPECT_TRUE(std::isnan(weight));
}

}  // namespace
}  // namespace lily
