// Stop strings over every way to cut the text.
#include "api/stop_matcher.h"

#include <gtest/gtest.h>

namespace lily::api {
namespace {

// The text that comes out when `text` arrives cut at the bits of `cuts`.
std::string run(const std::vector<std::string>& stops, std::string_view text, unsigned cuts) {
  const StopMatcher matcher(stops);
  std::string got;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= text.size(); ++i) {
    if (i != text.size() && (cuts >> (i - 1) & 1u) == 0) continue;
    const std::size_t old_size = got.size();
    got += text.substr(begin, i - begin);
    begin = i;
    if (const auto end = matcher.find(got, old_size)) return got.substr(0, *end);
  }
  return got;
}

struct Case {
  std::vector<std::string> stops;
  std::string text;
  std::string want;
};

TEST(StopMatcherTest, S04SameEndHoweverTheTextIsCut) {
  const std::vector<Case> cases{
      {{"own fox"}, "brown fox jump", "br"},
      {{"\nUser:"}, "hi\nUse\nUser:x", "hi\nUse"},
      {{"aab"}, "aaab", "a"},
      {{"abc", "bcd"}, "xabcd", "x"},
      {{"abcd", "bc"}, "xabcd", "xa"},
      {{"bcd", "bc"}, "abcd", "a"},
      {{"zzz"}, "abcd", "abcd"},
      {{"d"}, "abcd", "abc"},
      {{"a"}, "abcd", ""},
      {{}, "abcd", "abcd"},
      {{"\xc3\xa9"}, "caf\xc3\xa9!", "caf"},
  };
  for (const Case& c : cases) {
    for (unsigned cuts = 0; cuts < 1u << (c.text.size() - 1); ++cuts)
      ASSERT_EQ(run(c.stops, c.text, cuts), c.want) << c.text;
  }
}

}  // namespace
}  // namespace lily::api
