#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace lily {
namespace {

std::string repaired(std::string_view text) {
  std::string out;
  utf8::append_repaired(out, text);
  return out;
}

TEST(Utf8, RepairsByMaximalSubparts) {
  const std::string r(utf8::kReplacementBytes);
  EXPECT_EQ(repaired("plain ascii, long enough for a word"), "plain ascii, long enough for a word");
  EXPECT_EQ(repaired("a\xFF"
                     "b"),
            "a" + r + "b");
  EXPECT_EQ(repaired("\xC3\x28"), r + "(");
  EXPECT_EQ(repaired("\xE4\xBD"), r);
  EXPECT_EQ(repaired("\xE4\xBDx"), r + "x");
  EXPECT_EQ(repaired("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(repaired("\xF0\x9F\xA6"), r);
  EXPECT_EQ(repaired("\xF0\x80\x80\x80"), r + r + r + r);
  EXPECT_EQ(repaired("\x80\x80"), r + r);
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    utf8::append(text, c);
    ASSERT_TRUE(utf8::is_valid(text)) << std::hex << static_cast<std::uint32_t>(c);
    std::size_t position = 0;
    ASSERT_EQ(utf8::next(text, position), c);
    ASSERT_EQ(position, text.size());
  }
}

TEST(Utf8, KnowsWhatCouldStillBeCompleted) {
  bool truncated = false;
  EXPECT_EQ(utf8::scan("\xF0\x9F", &truncated), -2);
  EXPECT_TRUE(truncated);
  EXPECT_EQ(utf8::scan("\xF0\x41", &truncated), -1);
  EXPECT_FALSE(truncated);
  EXPECT_EQ(utf8::scan("\xED\xA0", &truncated), -1);
  EXPECT_FALSE(truncated);
}

}  // namespace
}  // namespace lily
