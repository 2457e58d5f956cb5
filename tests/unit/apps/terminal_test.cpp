// Text of a model cannot control the terminal.
#include "apps/terminal.h"

#include <gtest/gtest.h>

namespace lily::apps {
namespace {

TEST(WithoutControls, KeepsTextNewlinesAndTabs) {
  EXPECT_EQ(without_controls("a\tb\nGr\xc3\xbc\xc3\x9f"
                             "e \xe6\x97\xa5"),
            "a\tb\nGr\xc3\xbc\xc3\x9f"
            "e \xe6\x97\xa5");
}

TEST(WithoutControls, DropsEscapesAndOtherControls) {
  EXPECT_EQ(without_controls("\x1b]0;title\x07x\r\x7f\b"), "]0;titlex");
}

TEST(WithoutControls, DropsControlsOfTheSecondRange) {
  EXPECT_EQ(without_controls("a\xc2\x9b"
                             "31mb"),
            "a31mb");  // U+009B is a one-character escape
  EXPECT_EQ(without_controls("\xc2\xa0"), "\xc2\xa0");
}

}  // namespace
}  // namespace lily::apps
