// Directories and files of other formats are recognised before anything is parsed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "support/crafted_checkpoint.h"

namespace lily {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::filesystem::path& path) {
  const auto checkpoint = Checkpoint::open(path);
  return checkpoint ? "opened" : checkpoint.error().message;
}

TEST(Foreign, GgufFile) {
  const TempDirectory temp;
  write_text(temp / "model.gguf", "GGUF" + std::string(64, '\0'));
  EXPECT_THAT(refusal(temp / "model.gguf"), AllOf(HasSubstr("found a GGUF file"), HasSubstr("wanted:")));
  EXPECT_THAT(refusal(temp.path()), AllOf(HasSubstr("found a GGUF file (\"model.gguf\")"), HasSubstr("wanted:")));
}

TEST(Foreign, GgufRenamed) {
  CraftedCheckpoint crafted;
  crafted.write();
  write_text(crafted.path() / CraftedCheckpoint::shard_name(0), "GGUF" + std::string(64, '\0'));
  EXPECT_THAT(refusal(crafted.path()), AllOf(HasSubstr("model-00001-of-00002.safetensors"), HasSubstr("a GGUF file")));
}

TEST(Foreign, PytorchWeights) {
  CraftedCheckpoint crafted;
  crafted.write();
  for (int shard : {0, 1}) std::filesystem::remove(crafted.path() / CraftedCheckpoint::shard_name(shard));
  std::filesystem::remove(crafted.path() / "model.safetensors.index.json");
  write_text(crafted.path() / "pytorch_model.bin", "PK");
  EXPECT_THAT(refusal(crafted.path()), HasSubstr("PyTorch weights"));
}

TEST(Foreign, SafetensorsFileInsteadOfDirectory) {
  CraftedCheckpoint crafted;
  crafted.write();
  EXPECT_THAT(refusal(crafted.path() / CraftedCheckpoint::shard_name(0)), HasSubstr("expected the directory"));
}

TEST(Foreign, UnquantisedTensors) {
  CraftedCheckpoint crafted;
  CraftedTensor& weight = crafted.tensor("language_model.lm_head.weight");
  weight.dtype = "BF16";
  weight.dims = {2048, 256};
  EXPECT_NO_FATAL_FAILURE(crafted.write());
  EXPECT_THAT(refusal(crafted.path()), HasSubstr("found unquantised BF16"));
}

}  // namespace
}  // namespace lily
