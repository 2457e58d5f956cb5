// Hosts, origins and keys.
#include "net/access.h"

#include <gtest/gtest.h>

namespace lily::net {
namespace {

RequestHead head_with(std::vector<Header> headers, std::string method = "GET", std::string target = "/v1/models") {
  RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers = std::move(headers);
  return head;
}

int status_of(const Access& access, const RequestHead& head, bool open = false) {
  const auto denial = access.check(head, open);
  return denial ? denial->status : 200;
}

TEST(AccessTest, H13OnLoopbackOnlyNamesOfThisMachinePass) {
  const Access access({});
  for (const char* host :
       {"127.0.0.1:8080", "127.0.0.1", "localhost", "LocalHost:1", "[::1]:8080", "[::1]", "127.9.9.9"})
    EXPECT_EQ(status_of(access, head_with({{"Host", host}})), 200) << host;
  for (const char* host : {"evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.256",
                           "127.1", "192.168.1.2", "[::2]", "xn--localhost"})
    EXPECT_EQ(status_of(access, head_with({{"Host", host}})), 403) << host;
  for (const char* host : {"", "a b", "[::1", "localhost:x", "localhost:123456", "localhost@evil"})
    EXPECT_EQ(status_of(access, head_with({{"Host", host}})), 400) << host;
}

TEST(AccessTest, H13HostMustBeOneInHttp11) {
  const Access access({});
  EXPECT_EQ(status_of(access, head_with({})), 400);
  EXPECT_EQ(status_of(access, head_with({{"Host", "localhost"}, {"host", "localhost"}})), 400);
  RequestHead old = head_with({});
  old.http_1_0 = true;
  EXPECT_EQ(status_of(access, old), 200);
  EXPECT_EQ(status_of(access, head_with({{"Host", "localhost"}}, "GET", "http://evil.example/v1/models")), 403);
}

TEST(AccessTest, OtherNamesPassWithAKeyOrOnAPublicAddress) {
  EXPECT_EQ(
      status_of(Access({.loopback = false, .api_keys = {}, .cors_origins = {}}), head_with({{"Host", "gpu.example"}})),
      200);
  const Access keyed({.loopback = true, .api_keys = {"secret"}, .cors_origins = {}});
  EXPECT_EQ(status_of(keyed, head_with({{"Host", "gpu.example"}, {"Authorization", "Bearer secret"}})), 200);
}

TEST(AccessTest, H16KeysFailClosed) {
  const Access access({.loopback = true, .api_keys = {"secret", "other"}, .cors_origins = {}});
  const Header host{"Host", "localhost"};
  const auto status = [&](std::vector<Header> headers, bool open = false) {
    headers.push_back(host);
    return status_of(access, head_with(std::move(headers)), open);
  };
  EXPECT_EQ(status({{"Authorization", "Bearer secret"}}), 200);
  EXPECT_EQ(status({{"authorization", "bearer other"}}), 200);
  EXPECT_EQ(status({{"X-Api-Key", "secret"}}), 200);
  EXPECT_EQ(status({{"Authorization", "Bearer secret"}, {"x-api-key", "other"}}), 200);
  EXPECT_EQ(status({}), 401);
  EXPECT_EQ(status({}, true), 200);
  for (const char* value : {"", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Bearer  secret", "Basic secret",
                            "secret", "Bearer SECRET"})
    EXPECT_EQ(status({{"Authorization", value}}), 401) << value;
  EXPECT_EQ(status({{"Authorization", "Bearer secret"}, {"x-api-key", ""}}), 401);
  EXPECT_EQ(status({{"Authorization", "Bearer secret"}, {"x-api-key", "wrong"}}), 401);
  EXPECT_EQ(status({{"Authorization", "Bearer wrong"}, {"x-api-key", "secret"}}), 401);
  EXPECT_EQ(status({{"Authorization", "Bearer secret"}, {"Authorization", "Bearer secret"}}), 401);
  EXPECT_EQ(status({{"x-api-key", "secret"}, {"x-api-key", "secret"}}), 401);
}

TEST(AccessTest, KeysThatCouldNotBeSentAreRefused) {
  EXPECT_TRUE(key_problem("sk-abc").empty());
  for (const char* key : {"", "a b", "a\n", "trailing ", "\xc3\xa9"}) EXPECT_FALSE(key_problem(key).empty()) << key;
}

TEST(AccessTest, H12ForeignOriginsMayNotWriteWithoutAKey) {
  const Access access({.loopback = true, .api_keys = {}, .cors_origins = {"https://app.example"}});
  const auto post = [&](const char* origin) {
    return status_of(access, head_with({{"Host", "localhost"}, {"Origin", origin}}, "POST"));
  };
  EXPECT_EQ(post("http://localhost:3000"), 200);
  EXPECT_EQ(post("https://app.example"), 200);
  EXPECT_EQ(post("https://pages.example"), 403);
  EXPECT_EQ(post("null"), 403);
  EXPECT_EQ(post("http://localhost.pages.example"), 403);
  EXPECT_EQ(post("https://app.example.evil"), 403);
  EXPECT_EQ(status_of(access, head_with({{"Host", "localhost"}, {"Origin", "https://pages.example"}})), 200);
}

std::string value_of(const std::vector<Header>& headers, std::string_view name) {
  for (const Header& header : headers) {
    if (equals_ignoring_case(header.name, name)) return header.value;
  }
  return {};
}

TEST(AccessTest, H12OnlyAllowedOriginsGetCorsHeaders) {
  const Access access({});
  const auto cors = [&](const char* origin, bool preflight) {
    std::vector<Header> headers;
    access.add_cors(head_with({{"Origin", origin}, {"Access-Control-Request-Headers", "content-type,x-mine"}}),
                    preflight, headers);
    return headers;
  };
  const auto allowed = cors("http://localhost:3000", true);
  EXPECT_EQ(value_of(allowed, "Access-Control-Allow-Origin"), "http://localhost:3000");
  EXPECT_EQ(value_of(allowed, "Access-Control-Allow-Headers"), "content-type,x-mine");
  EXPECT_EQ(value_of(allowed, "Access-Control-Allow-Credentials"), "");
  EXPECT_EQ(value_of(allowed, "Vary"), "Origin");
  for (const char* origin : {"https://pages.example", "null"}) {
    const auto refused = cors(origin, true);
    EXPECT_EQ(value_of(refused, "Access-Control-Allow-Origin"), "") << origin;
    EXPECT_EQ(value_of(refused, "Vary"), "Origin") << origin;
  }
}

TEST(RequestHeadTest, H15PathIsTheWholePathAndNothingElse) {
  const auto path = [](std::string target) { return std::string(head_with({}, "GET", std::move(target)).path()); };
  EXPECT_EQ(path("/health?" + std::string(300, 'x')), "/health");
  EXPECT_EQ(path("/v1/models/" + std::string(250, 'a')), "/v1/models/" + std::string(250, 'a'));
  EXPECT_EQ(path("http://localhost:8080/health?x"), "/health");
  EXPECT_EQ(path("http://localhost"), "/");
  EXPECT_EQ(path("/a://b"), "/a://b");
  EXPECT_EQ(path("*"), "*");
}

}  // namespace
}  // namespace lily::net
