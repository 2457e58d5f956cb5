// verify and inspect: faults that only the values show, and what is said about a checkpoint that nobody published.
#include "model/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/mmap_file.h"
#include "model/inspect.h"
#include "model/safetensors.h"
#include "model/synth.h"
#include "support/temp_directory.h"

namespace lily {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Outcome = VerifyLine::Outcome;

constexpr std::uint16_t kNan = 0x7fc0, kInfinity = 0x7f80;  // BF16

std::string lines_of(const VerifyReport& report, Outcome outcome) {
  std::string all;
  for (const VerifyLine& line : report.lines)
    if (line.outcome == outcome) all += line.text + "\n";
  return all;
}

class Verify : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(write_synthetic_checkpoint(directory(), {})); }
  std::filesystem::path directory() const { return temp_ / "m"; }

  // Overwrites all BF16 values of a tensor in the file.
  void overwrite(std::string_view tensor, std::uint16_t value) const {
    const std::filesystem::path path = directory() / "model.safetensors";
    std::size_t offset = 0, n = 0;
    {
      const auto file = MappedFile::open(path);
      const auto header = parse_safetensors(file->bytes(), "file");
      const auto entry = std::ranges::find(header->tensors, tensor, &SafetensorsEntry::name);
      ASSERT_NE(entry, header->tensors.end());
      offset = static_cast<std::size_t>(entry->data.data() - file->bytes().data());
      n = entry->data.size() / 2;
    }
    std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(offset));
    for (std::size_t i = 0; i < n; ++i) stream.write(reinterpret_cast<const char*>(&value), sizeof value);
    ASSERT_TRUE(stream.good());
  }

 private:
  TempDirectory temp_;
};

TEST_F(Verify, SoundAndUnknown) {
  std::uint64_t last = 0, total = 0;
  VerifySpec spec;
  spec.progress = [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  };
  const auto report = verify_checkpoint(directory(), spec);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->sound());
  EXPECT_EQ(last, total);
  EXPECT_THAT(lines_of(*report, Outcome::NotChecked), HasSubstr("no published values for these files"));
}

TEST_F(Verify, QuickSaysWhatItLeftOut) {
  VerifySpec spec;
  spec.quick = true;
  const auto report = verify_checkpoint(directory(), spec);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->sound());
  EXPECT_THAT(lines_of(*report, Outcome::NotChecked), HasSubstr("not read with --quick"));
}

TEST_F(Verify, NanAndInfinityAreNamed) {
  overwrite("language_model.model.layers.2.mlp.switch_mlp.up_proj.scales", kNan);
  overwrite("language_model.model.layers.3.self_attn.k_norm.weight", kInfinity);
  const auto report = verify_checkpoint(directory(), {});
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->sound());
  EXPECT_THAT(lines_of(*report, Outcome::Failed),
              AllOf(HasSubstr("in 2 tensors"), HasSubstr("layers.2.mlp.switch_mlp.up_proj.scales"),
                    HasSubstr("layers.3.self_attn.k_norm.weight")));
}

TEST_F(Verify, ZeroCentredNormsAreTold) {
  overwrite("language_model.model.layers.1.input_layernorm.weight", 0);
  const auto report = verify_checkpoint(directory(), {});
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->sound());
  EXPECT_THAT(lines_of(*report, Outcome::Failed), HasSubstr("layers.1.input_layernorm.weight"));
}

TEST_F(Verify, WhatDoesNotOpenIsAnError) {
  std::filesystem::resize_file(directory() / "model.safetensors", 1'000'000);
  EXPECT_FALSE(verify_checkpoint(directory(), {}));
  EXPECT_FALSE(inspect_checkpoint(directory()));
}

TEST_F(Verify, InspectCounts) {
  const auto report = inspect_checkpoint(directory());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->tensors.size(), 357u);
  EXPECT_EQ(report->n_files, 1u);
  EXPECT_EQ(report->n_modules_8bit, 16u);
  EXPECT_EQ(report->n_modules_4bit, 88u);
  EXPECT_EQ(report->n_parameters, 24096816u);
}

}  // namespace
}  // namespace lily
