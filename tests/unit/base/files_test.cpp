// Files: mapped, read, written and given up; hashes and the texts made for messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mmap_file.h"
#include "base/output_file.h"
#include "base/quote.h"
#include "base/sha256.h"
#include "support/temp_directory.h"

namespace lily {
namespace {

using ::testing::HasSubstr;

TEST(MappedFile, ShowsTheBytes) {
  const TempDirectory temp;
  ASSERT_TRUE(write_file(temp / "f", std::string(20000, 'a') + "end"));
  const auto file = MappedFile::open(temp / "f");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->bytes().size(), 20003u);
  EXPECT_EQ(file->bytes()[20002], std::byte{'d'});
  file->release(file->bytes().subspan(1, 20000));
  file->release({});
  EXPECT_EQ(file->bytes()[5000], std::byte{'a'});
}

TEST(MappedFile, EmptyMissingAndDangling) {
  const TempDirectory temp;
  ASSERT_TRUE(write_file(temp / "empty", ""));
  EXPECT_TRUE(MappedFile::open(temp / "empty")->bytes().empty());
  EXPECT_EQ(MappedFile::open(temp / "absent").error().code, ErrorCode::NotFound);
  EXPECT_EQ(MappedFile::open(temp.path()).error().code, ErrorCode::Io);
  std::filesystem::create_symlink("nowhere", temp / "link");
  EXPECT_THAT(MappedFile::open(temp / "link").error().message, HasSubstr("dangling link to nowhere"));
}

TEST(ReadFile, LimitsTheSize) {
  const TempDirectory temp;
  ASSERT_TRUE(write_file(temp / "f", "12345"));
  EXPECT_EQ(*read_file(temp / "f", 5), "12345");
  EXPECT_EQ(read_file(temp / "f", 4).error().code, ErrorCode::Corrupt);
}

TEST(OutputFile, IsRemovedUnlessCommitted) {
  const TempDirectory temp;
  {
    auto file = OutputFile::create(temp / "f");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write("half"));
    EXPECT_TRUE(std::filesystem::exists(temp / "f"));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "f"));
  EXPECT_EQ(OutputFile::create(temp / "absent" / "f").error().code, ErrorCode::Io);
}

TEST(Sha256, KnownValues) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.update("a");
  pieces.update("bc");
  EXPECT_EQ(pieces.hex(), sha256_hex("abc"));
}

TEST(Quote, IsOnePrintableLine) {
  EXPECT_EQ(quote("plain \xc3\xa4"), "\"plain \xc3\xa4\"");
  EXPECT_EQ(quote("a\n\"\\\xff\x1b"), "\"a\\x0a\\\"\\\\\\xff\\x1b\"");
  EXPECT_EQ(quote(std::string(1000, 'x'), 4), "\"xxxx\"... (1000 bytes)");
}

TEST(Numbers, ForPeople) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1500), "1.50 kB");
  EXPECT_EQ(human_bytes(20429169263), "20.4 GB");
  EXPECT_EQ(human_bytes(999'950), "1.00 MB");
}

}  // namespace
}  // namespace lily
