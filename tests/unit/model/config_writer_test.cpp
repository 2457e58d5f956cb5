// The small files that synth writes, against hashes of the published ones.
#include <gtest/gtest.h>

#include "base/mmap_file.h"
#include "base/sha256.h"
#include "model/config.h"

namespace lily {
namespace {

TEST(ConfigWriter, RealShapeIsThePublishedFile) {
  const std::string text = write_config(kQwen36_35B_A3B);
  EXPECT_EQ(text.size(), 23591u);
  EXPECT_EQ(sha256_hex(text), "a822a9e48b0aafbe3144ec37d4fb067e178ed96615ce6e4420b3149893cc5767");
}

TEST(ConfigWriter, RealGenerationConfigIsThePublishedFile) {
  EXPECT_EQ(sha256_hex(write_generation_config(kQwen36_35B_A3B)),
            "e70c136c1b78ddc1fb0905bac8e733a4dc448d4f852a5dd75143fffc70be550e");
}

TEST(ConfigWriter, LilyTinyIsTheFileOfTheRepository) {
  const std::string directory = LILY_SOURCE_DIR "/models/lily-tiny/";
  const auto config = read_file(directory + "config.json", 1 << 20);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(write_config(kLilyTiny), *config);
}

}  // namespace
}  // namespace lily
