// The model of the repository, from its directory and from inside the binary.
#include <gtest/gtest.h>

#include <filesystem>

#include "model/checkpoint.h"

namespace lily {
namespace {

const std::filesystem::path kDirectory = std::filesystem::path(LILY_SOURCE_DIR) / "models/lily-tiny";

void expect_lily_tiny(const Checkpoint& checkpoint) {
  EXPECT_EQ(&checkpoint.shape(), &kLilyTiny);
  EXPECT_EQ(checkpoint.id(), "lily-tiny");
  EXPECT_EQ(checkpoint.max_positions(), 32768);
  EXPECT_EQ(checkpoint.stop_ids(), (std::vector<TokenId>{1969, 1967}));
  EXPECT_EQ(checkpoint.weights().layers.size(), 8u);
  const MoeWeights& moe = checkpoint.weights().layers[3].moe;
  EXPECT_EQ(moe.router.bits, 8);
  EXPECT_EQ(moe.gate.bits, 4);
  EXPECT_EQ(moe.down.n_experts, 32);
  EXPECT_EQ(moe.down.out, 256);
  EXPECT_EQ(moe.down.in, 64);
  EXPECT_TRUE(checkpoint.weights().layers[3].attention.has_value());
  EXPECT_TRUE(checkpoint.weights().layers[4].gdn.has_value());
  EXPECT_FALSE(checkpoint.texts().tokenizer_json.empty());
  EXPECT_FALSE(checkpoint.texts().chat_template.empty());
}

TEST(LilyTiny, OpensFromItsDirectory) {
  const auto checkpoint = Checkpoint::open(kDirectory);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  expect_lily_tiny(*checkpoint);
}

TEST(LilyTiny, IsEmbedded) {
  const auto inside = Checkpoint::open_embedded();
  ASSERT_TRUE(inside) << inside.error().message;
  expect_lily_tiny(*inside);
  const auto outside = Checkpoint::open(kDirectory);
  ASSERT_TRUE(outside);
  EXPECT_EQ(inside->fingerprint(), outside->fingerprint());
}

TEST(LilyTiny, ReleasedBytesCanBeReadAgain) {
  const auto checkpoint = Checkpoint::open(kDirectory);
  ASSERT_TRUE(checkpoint);
  const AffineView& embed = checkpoint->weights().embed;
  const std::uint32_t before = embed.weight.load_u32(embed.weight.count() - 1);
  checkpoint->release(embed);
  EXPECT_EQ(embed.weight.load_u32(embed.weight.count() - 1), before);
}

}  // namespace
}  // namespace lily
