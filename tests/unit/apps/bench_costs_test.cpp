// The limits that bench measures against, compared with figures worked out by hand for the 35B shape.
#include "apps/bench_costs.h"

#include <gtest/gtest.h>

namespace lily::apps {
namespace {

constexpr const Shape& kBig = kQwen36_35B_A3B;

TEST(BenchCosts, WeightsOfOneToken) {
  EXPECT_EQ(step_weight_bytes(kBig, 1), 1'669'561'728.0);
}

TEST(BenchCosts, StateAndContext) {
  EXPECT_EQ(state_bytes(kBig), 125'829'120.0 + 2'949'120.0);
  EXPECT_EQ(kv_bytes(kBig), 20'480.0);
  EXPECT_EQ(decode_step_bytes(kBig, 1, 0), 1'798'339'968.0);
  EXPECT_NEAR(decode_step_bytes(kBig, 1, 32768), 2.47e9, 5e6);
}

TEST(BenchCosts, BatchesTouchMoreExperts) {
  EXPECT_NEAR(step_weight_bytes(kBig, 2), 2.22e9, 5e6);
  EXPECT_NEAR(step_weight_bytes(kBig, 16), 8.32e9, 5e6);
  EXPECT_NEAR(step_weight_bytes(kBig, 128), 18.91e9, 5e6);
  EXPECT_LT(step_weight_bytes(kBig, 1), step_weight_bytes(kBig, 2));
}

TEST(BenchCosts, PrefillOperations) {
  EXPECT_NEAR(prefill_flops(kBig, 2048), 10.6e12, 0.1e12);
  EXPECT_NEAR(prefill_flops(kBig, 131072), 2069e12, 15e12);
}

}  // namespace
}  // namespace lily::apps
