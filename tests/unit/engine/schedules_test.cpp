// Determinism: 300 random schedules on the hash model, whose answers show any state that was mixed up. The same
// schedules run on the real backends in tests/conformance/determinism_test.cpp.
#include <gtest/gtest.h>

#include "support/random_schedule.h"

namespace lily {
namespace {

test::Tokens oracle(const test::Tokens& prompt, std::int64_t limit) {
  return fake::expected_answer(prompt, limit);
}

class Schedules : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(, Schedules, testing::Range(0u, 300u));

TEST_P(Schedules, AnswersNeitherDependOnCacheNorBatchNorChunks) {
  constexpr std::int64_t kBatchSizes[] = {1, 2, 7, 64, 512};
  const std::int64_t max_batch_tokens = kBatchSizes[GetParam() % 5];
  const auto memory = std::make_shared<fake::Memory>();
  {
    const EngineOptions options = test::random_options(GetParam(), max_batch_tokens);
    const auto engine = test::make_engine(options, {.max_batch_tokens = max_batch_tokens}, memory);
    test::RandomSchedule(GetParam(), {}).run(*engine, oracle);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.requests, stats.finished + stats.cancelled);
    EXPECT_EQ(stats.active + stats.queued, 0);
    EXPECT_EQ(stats.kv_reserved_bytes, 0u);
    if (options.cache_states == 0) {
      EXPECT_LE(stats.cache_used_bytes, options.cache_bytes);
    }
    EXPECT_LE(static_cast<std::size_t>(memory->bytes()), stats.cache_used_bytes);  // which also counts tokens
  }
  EXPECT_EQ(memory->bytes(), 0);
}

}  // namespace
}  // namespace lily
