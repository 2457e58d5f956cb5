#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace lily {
namespace {

std::string round_trip(std::string_view text) {
  const auto value = json::parse(text);
  return value ? json::python_dumps(*value) : "error: " + value.error().message;
}

std::string error_of(std::string_view text) {
  const auto value = json::parse(text);
  return value ? "accepted" : value.error().message;
}

TEST(Json, AcceptsMarkAndBlanksAroundOneDocument) {
  EXPECT_EQ(round_trip("\xEF\xBB\xBF {\"a\": [1, 2]} \n"), R"({"a": [1, 2]})");
  for (const char* bad :
       {"", " ", "{} x", "{} {}", "[1,]", "{\"a\":1,}", "nul", "\"a", "{a:1}", "[NaN]", "01", "+1", "'a'", "/*c*/1"}) {
    EXPECT_FALSE(json::parse(bad)) << bad;
  }
}

TEST(Json, KeepsKeyOrderAndTakesTheLastOfDuplicates) {
  EXPECT_EQ(round_trip(R"({"z":1,"a":2,"m":{"y":null,"b":true}})"), R"({"z": 1, "a": 2, "m": {"y": null, "b": true}})");
  EXPECT_EQ(round_trip(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(Json, RefusesInvalidUtf8WithoutEchoingIt) {
  for (const char* bytes : {"\xC4\xE3\xBA\xC3", "\xC3\x28", "\xED\xA0\x80", "\xF8\x88\x80\x80\x80", "\xE4\xBD"}) {
    const std::string message = error_of(std::string("{\"content\":\"") + bytes + "\"}");
    EXPECT_NE(message, "accepted");
    for (const char c : message) EXPECT_LT(static_cast<unsigned char>(c), 0x80u);
  }
  EXPECT_NE(error_of("{\"messages\": [\xFF"), "accepted");
  EXPECT_EQ(error_of(R"({"key": sk-test-000})").find("sk-test"), std::string::npos);
  EXPECT_FALSE(json::parse(R"("\ud800")")) << "lone surrogate";
}

TEST(Json, DepthIsBoundedEverywhere) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(json::parse(nested(json::kMaxDepth)));
  EXPECT_FALSE(json::parse(nested(json::kMaxDepth + 1)));
  EXPECT_NE(error_of(std::string(200000, '[')).find("nested deeper than 128"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 200000; ++i) objects += "{\"a\":";
  EXPECT_NE(error_of(objects).find("nested deeper than 128"), std::string::npos);
  EXPECT_NE(error_of("{\"metadata\":" + std::string(200000, '[')).find("nested"), std::string::npos);
}

TEST(Json, FloatsAreReadExactlyAndPrintedAsPythonDoes) {
  const std::pair<const char*, const char*> rows[] = {{"0.1", "0.1"},
                                                      {"1.0", "1.0"},
                                                      {"-0.0", "-0.0"},
                                                      {"1e3", "1000.0"},
                                                      {"1E15", "1000000000000000.0"},
                                                      {"1e16", "1e+16"},
                                                      {"0.0001", "0.0001"},
                                                      {"0.00001", "1e-05"},
                                                      {"123456789.125", "123456789.125"},
                                                      {"1.7976931348623157e308", "1.7976931348623157e+308"},
                                                      {"5e-324", "5e-324"},
                                                      {"2.2250738585072011e-308", "2.225073858507201e-308"},
                                                      {"9007199254740993.0", "9007199254740992.0"},
                                                      {"1e-999", "0.0"},
                                                      {"0.30000000000000004", "0.30000000000000004"},
                                                      {"2.5e-7", "2.5e-07"},
                                                      {"7.0e22", "7e+22"},
                                                      {"-1.5", "-1.5"},
                                                      {"8.41e21", "8.41e+21"},
                                                      {"9223372036854775807", "9223372036854775807"},
                                                      {"18446744073709551615", "18446744073709551615"},
                                                      {"-9223372036854775808", "-9223372036854775808"},
                                                      {"-0", "0"}};
  for (const auto& [in, out] : rows) EXPECT_EQ(round_trip(in), out) << in;
  EXPECT_NE(error_of("[1e999]").find("no double can hold"), std::string::npos);
}

TEST(Json, DumpIsCompactFiniteAndValidUtf8) {
  json::Object object;
  object["a"] = 0.1;
  object["n"] = std::numeric_limits<double>::infinity();
  object["s"] = "\xFFq\x01\x7F\"\\\n\xC3\xA9\xE4\xBD";
  EXPECT_EQ(json::dump(object),
            "{\"a\":0.1,\"n\":null,\"s\":\"\xEF\xBF\xBDq\\u0001\x7F\\\"\\\\\\n\xC3\xA9\xEF\xBF\xBD\"}");
  EXPECT_EQ(json::python_dumps(object["n"]), "Infinity");
}

}  // namespace
}  // namespace lily
