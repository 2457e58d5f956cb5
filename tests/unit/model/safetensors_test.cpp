// Headers that lie: lengths, offsets, shapes, names. Each is refused with its own words.
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace lily {
namespace {

using ::testing::HasSubstr;

std::string with_length(std::uint64_t length, std::string_view rest) {
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file.append(rest);
}

std::string file_of(std::string_view header, std::size_t data_bytes) {
  return with_length(header.size(), header) + std::string(data_bytes, '\0');
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "shard");
}

void expect_refused(const std::string& file, std::string_view reason) {
  const auto header = parse(file);
  ASSERT_FALSE(header) << reason;
  EXPECT_THAT(header.error().message, HasSubstr(reason));
  EXPECT_THAT(header.error().message, ::testing::StartsWith("shard"));
  EXPECT_EQ(header.error().message.find('\n'), std::string::npos);
  EXPECT_LT(header.error().message.size(), 500u);
}

// One tensor of 64 bytes of data, with these fields.
std::string one(std::string_view fields, std::size_t data_bytes = 64) {
  return file_of("{\"a\":{" + std::string(fields) + "}}", data_bytes);
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string file =
      file_of(R"({"__metadata__":{"format":"mlx"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},)"
              R"("a":{"dtype":"U32","shape":[2,1],"data_offsets":[0,8]}}   )",
              14);
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dims, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(header->tensors[1].dtype, "BF16");
  EXPECT_EQ(header->data_begin, file.size() - 14);
  EXPECT_EQ(reinterpret_cast<const char*>(header->tensors[1].data.data()), file.data() + file.size() - 6);
}

TEST(Safetensors, L01HeaderLength) {
  const std::string rest(100, ' ');
  expect_refused(with_length(0, rest), "header length is 0");
  expect_refused(with_length(2, "{}" + rest), "no tensors");
  expect_refused(with_length(108, rest), "cut short");
  expect_refused(with_length(101, rest), "cut short");
  expect_refused(with_length(std::uint64_t{1} << 63, rest), "above the format's limit");
  expect_refused(with_length(~std::uint64_t{0}, rest), "above the format's limit");
  expect_refused(with_length(101u << 20, rest), "above the format's limit");
  expect_refused("12345", "too short");
  expect_refused("", "too short");
  expect_refused(with_length(100, rest), "does not begin with");
}

TEST(Safetensors, L02Offsets) {
  const std::string prefix = R"("dtype":"U32","shape":[4,4],"data_offsets":)";
  expect_refused(one(prefix + "[64,0]"), "begins at 64 and ends before");
  expect_refused(one(prefix + "[-64,0]"), "not an unsigned integer");
  expect_refused(one(prefix + "[0,65]"), "1 bytes past the end");
  expect_refused(one(prefix + "[64]"), "not a pair");
  expect_refused(one(prefix + "[0,32,64]"), "not a pair");
  expect_refused(one(prefix + R"(["0","64"])"), "not an unsigned integer");
  expect_refused(one(prefix + "[0.0,64.0]"), "not an unsigned integer");
  expect_refused(one(prefix + "[0,18446744073709551615]"), "past the end");
  expect_refused(one(R"("dtype":"U32","shape":[4,4])"), "not a pair");
  const auto two = [](std::string_view first, std::string_view second) {
    return file_of(R"({"a":{"dtype":"U8","shape":[32],"data_offsets":)" + std::string(first) +
                       R"(},"b":{"dtype":"U8","shape":[32],"data_offsets":)" + std::string(second) + "}}",
                   64);
  };
  EXPECT_TRUE(parse(two("[0,32]", "[32,64]")));
  expect_refused(two("[0,32]", "[16,48]"), "overlaps");
  expect_refused(two("[0,32]", "[0,32]"), "overlaps");
  expect_refused(two("[32,64]", "[32,64]"), "unused bytes before");
  expect_refused(two("[1,33]", "[32,64]"), "unused bytes before");
}

TEST(Safetensors, L03ShapeAgainstBytes) {
  const std::string suffix = R"(,"dtype":"U32","data_offsets":[0,64])";
  EXPECT_TRUE(parse(one(R"("shape":[4,4])" + suffix)));
  expect_refused(one(R"("shape":[4,8])" + suffix), "need 128 bytes, offsets give 64");
  expect_refused(one(R"("shape":[8589934592,8589934592])" + suffix), "overflows");
  expect_refused(one(R"("shape":[4611686018427387904,4])" + suffix), "overflows");
  expect_refused(one(R"("shape":[0,4])" + suffix), "not a positive integer");
  expect_refused(one(R"("shape":[-4,-4])" + suffix), "not a positive integer");
  expect_refused(one(R"("shape":[1,1,1,1,1,1,1,4,4])" + suffix), "rank 9");
  expect_refused(one(R"("shape":[])" + suffix), "rank 0");
  expect_refused(one(R"("shape":16)" + suffix), "not an array");
  expect_refused(one(R"("shape":[16],"dtype":"Q4","data_offsets":[0,64])"), "unknown dtype");
  expect_refused(one(R"("shape":[16],"dtype":7,"data_offsets":[0,64])"), "\"dtype\" is missing");
}

TEST(Safetensors, L05OddHeaders) {
  const std::string a = R"({"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
  expect_refused(file_of("{\"a\":" + a + ",\"a\":" + a + "}", 8), "key \"a\" comes twice");
  expect_refused(file_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})", 8),
                 "\"dtype\" comes twice");
  expect_refused(file_of(R"({"__metadata__":{"format":1},"a":)" + a + "}", 8), "not a string");
  expect_refused(file_of(R"({"__metadata__":[],"a":)" + a + "}", 8), "not an object");
  expect_refused(file_of("{\"\xff\xfe\":" + a + "}", 8), "not valid JSON");
  expect_refused(file_of("{\"a\":" + a + "} x", 8), "more text after the JSON");
  expect_refused(file_of("{\"a\":" + a, 8), "not valid JSON");
  expect_refused(file_of("{\"a\":7}", 8), "expected an object");
  expect_refused(file_of("{\"a\":" + a + "}", 9), "1 bytes after the last tensor");
  expect_refused(file_of("{\"" + std::string(1 << 20, 'k') + "\":" + a + "}", 8), "1048576");
  expect_refused(file_of("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 8), "not valid JSON");
  EXPECT_TRUE(parse(file_of("{\"a\":" + a + "}" + std::string(57, ' '), 8)));
}

TEST(Safetensors, OtherFormatsAreNamed) {
  expect_refused("GGUF" + std::string(100, '\0'), "a GGUF file");
  expect_refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer");
}

}  // namespace
}  // namespace lily
