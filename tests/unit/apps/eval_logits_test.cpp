// Saved logits survive the way to the disk and back; damaged files are refused with a reason.
#include "apps/eval_logits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lily::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SavedLogitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("lily-logits-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const Windows& windows, const std::vector<float>& rows, int vocab) {
    const std::string path = (folder_ / "logits.safetensors").string();
    auto writer = LogitsWriter::create(path, windows, vocab);
    EXPECT_TRUE(writer.has_value());
    EXPECT_TRUE(writer->add(rows).has_value());
    EXPECT_TRUE(writer->finish().has_value());
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(SavedLogitsTest, RoundTrip) {
  const std::string path = write({{0, 1}, {2}}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 3);
  const auto saved = SavedLogits::open(path, 3);
  ASSERT_TRUE(saved.has_value()) << saved.error().message;
  EXPECT_THAT(saved->windows(), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  std::vector<float> row(3);
  saved->row(2, row);
  EXPECT_THAT(row, ElementsAre(7, 8, 9));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_F(SavedLogitsTest, AnotherVocabularyIsRefused) {
  const std::string path = write({{0, 1}}, {1, 2, 3, 4, 5, 6}, 3);
  const auto saved = SavedLogits::open(path, 4);
  ASSERT_FALSE(saved.has_value());
  EXPECT_THAT(saved.error().message, HasSubstr("vocabulary of 3, this model has 4"));
}

TEST_F(SavedLogitsTest, ATokenOutsideTheVocabularyIsRefused) {
  const std::string path = write({{0, 9}}, {1, 2, 3, 4, 5, 6}, 3);
  const auto saved = SavedLogits::open(path, 3);
  ASSERT_FALSE(saved.has_value());
  EXPECT_THAT(saved.error().message, HasSubstr("token 9"));
}

TEST_F(SavedLogitsTest, ACutFileIsRefused) {
  const std::string path = write({{0, 1}}, {1, 2, 3, 4, 5, 6}, 3);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  EXPECT_FALSE(SavedLogits::open(path, 3).has_value());
}

TEST_F(SavedLogitsTest, AnotherKindOfFileIsRefused) {
  const std::string path = (folder_ / "other").string();
  std::ofstream(path) << "these are not logits";
  EXPECT_FALSE(SavedLogits::open(path, 3).has_value());
}

}  // namespace
}  // namespace lily::apps
