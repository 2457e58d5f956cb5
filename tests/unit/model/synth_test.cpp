// What synth writes: the published index to the byte, a checkpoint that opens, the same bytes for the same seed.
#include "model/synth.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include "base/mmap_file.h"
#include "base/sha256.h"
#include "model/checkpoint.h"
#include "model/synth_plan.h"
#include "support/temp_directory.h"
#include "tensor/affine4.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> hashes(const fs::path& directory) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const auto text = read_file(entry.path(), std::size_t{1} << 30);
    all.emplace(entry.path().filename(), sha256_hex(*text));
  }
  return all;
}

TEST(Synth, IndexOfTheRealShapeIsThePublishedFile) {
  const auto tensors = synth_tensors(kQwen36_35B_A3B, /*vision=*/true, 1);
  EXPECT_EQ(tensors.size(), 2090u);
  EXPECT_EQ(total_bytes(tensors), 20401929952u);
  const auto shards = plan_shards(tensors, std::uint64_t{5} << 30);
  EXPECT_EQ(shards.size(), 4u);
  EXPECT_EQ(sha256_hex(write_index(shards, total_bytes(tensors))),
            "0b28df60e33753a14e816d3b31577ae2c93884c58430a4a6de6ae9ea483842ea");
}

TEST(Synth, TextTensorsOfTheRealShape) {
  const auto tensors = synth_tensors(kQwen36_35B_A3B, /*vision=*/false, 1);
  EXPECT_EQ(tensors.size(), 1757u);
  EXPECT_EQ(total_bytes(tensors), 19508787456u);
}

TEST(Synth, OpensAndRepeats) {
  const TempDirectory temp;
  SynthSpec spec;
  spec.seed = 7;
  spec.shard_bytes = 3'000'000;  // several shards, modules split between them
  const auto first = write_synthetic_checkpoint(temp / "a", spec);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_GT(first->n_shards, 3u);
  const auto checkpoint = Checkpoint::open(temp / "a");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->shape().name, "LilyTiny");

  ASSERT_TRUE(write_synthetic_checkpoint(temp / "b", spec));
  EXPECT_EQ(hashes(temp / "a"), hashes(temp / "b"));
  spec.seed = 8;
  ASSERT_TRUE(write_synthetic_checkpoint(temp / "c", spec));
  EXPECT_NE(hashes(temp / "a"), hashes(temp / "c"));
  EXPECT_NE(checkpoint->fingerprint(), Checkpoint::open(temp / "c")->fingerprint());
}

TEST(Synth, DataIsUnalignedAndOutOfOrder) {
  const TempDirectory temp;
  SynthSpec spec;
  spec.shard_bytes = 1'500'000;
  ASSERT_TRUE(write_synthetic_checkpoint(temp / "m", spec));
  const auto checkpoint = Checkpoint::open(temp / "m");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  std::set<std::uintptr_t> remainders;
  bool backwards = false;
  const std::byte* previous = nullptr;
  for (const LayerWeights& layer : checkpoint->weights().layers) {
    remainders.insert(reinterpret_cast<std::uintptr_t>(layer.moe.gate.weight.data) % 4);
    backwards = backwards || layer.moe.gate.weight.data < previous;
    previous = layer.moe.gate.weight.data;
  }
  EXPECT_GT(remainders.size(), 1u);
  EXPECT_TRUE(backwards);
}

TEST(Synth, WeightsHaveTheirSize) {
  const TempDirectory temp;
  ASSERT_TRUE(write_synthetic_checkpoint(temp / "m", {}));
  const auto checkpoint = Checkpoint::open(temp / "m");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto deviation = [](const AffineView& view) {
    std::vector<float> row(static_cast<std::size_t>(view.in));
    double sum = 0;
    for (std::int64_t r = 0; r < view.out; ++r) {
      affine_dequantize_row(view, view.n_experts - 1, r, row);
      for (const float value : row) sum += static_cast<double>(value) * static_cast<double>(value);
    }
    return std::sqrt(sum / static_cast<double>(view.in * view.out));
  };
  const LayerWeights& layer = checkpoint->weights().layers[2];
  EXPECT_NEAR(deviation(checkpoint->weights().embed), 1.0, 0.1);
  EXPECT_NEAR(deviation(layer.moe.gate), 1 / 16.0, 0.01);
  EXPECT_NEAR(deviation(layer.moe.router), 1 / 16.0, 0.01);
  int n_negative = 0;
  for (std::int64_t i = 0; i < 1000; ++i) n_negative += layer.moe.gate.scales.load_float(i) < 0 ? 1 : 0;
  EXPECT_GT(n_negative, 400);
  EXPECT_LT(n_negative, 600);
}

TEST(Synth, RefusesToOverwrite) {
  const TempDirectory temp;
  fs::create_directory(temp / "full");
  {
    std::ofstream(temp / "full" / "keep") << "x";
  }
  const auto result = write_synthetic_checkpoint(temp / "full", {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::InvalidArgument);
  EXPECT_TRUE(fs::exists(temp / "full" / "keep"));
}

// A limit on the size of files stands in for a full disk: write() fails in the same place.
TEST(Synth, FullDiskLeavesNothing) {
  const TempDirectory temp;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 2'000'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto result = write_synthetic_checkpoint(temp / "m", {});
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::Io);
  EXPECT_NE(result.error().message.find("model.safetensors: cannot write"), std::string::npos)
      << result.error().message;
  EXPECT_FALSE(fs::exists(temp / "m"));
}

}  // namespace
}  // namespace lily
