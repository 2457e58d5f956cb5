#include "apps/bench_record.h"

#include <gtest/gtest.h>

namespace lily::apps {
namespace {

TEST(SpreadOf, OddAndEvenCounts) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(spread_of({7}).median, 7);
}

TEST(RecordHead, NamesWhatAFigureNeeds) {
  const json::Object head = record_head("lily-bench-speed/1", "lily bench");
  for (const char* key : {"schema", "date", "command", "version", "commit", "machine"}) {
    EXPECT_TRUE(head.contains(key)) << key;
  }
}

}  // namespace
}  // namespace lily::apps
