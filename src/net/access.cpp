#include "net/access.h"

#include <algorithm>
#include <array>

namespace lily::net {
namespace {

// Time depends on the length of the attempt, not on how much of it is right.
bool equal_in_constant_time(std::string_view expected, std::string_view given) {
  unsigned difference = expected.size() == given.size() ? 0u : 1u;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char reference = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned char>(reference) ^ static_cast<unsigned char>(given[i]);
  }
  return difference == 0;
}

bool all_of(std::string_view text, bool (*test)(char)) {
  return std::all_of(text.begin(), text.end(), test);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Splits "name", "name:port", "[v6]", "[v6]:port"; nothing if malformed.
std::optional<std::string_view> host_name(std::string_view authority) {
  if (authority.empty()) return std::nullopt;
  std::size_t end;
  if (authority.front() == '[') {
    end = authority.find(']');
    if (end == authority.npos) return std::nullopt;
    ++end;
  } else {
    end = std::min(authority.find(':'), authority.size());
  }
  const std::string_view name = authority.substr(0, end);
  std::string_view port = authority.substr(end);
  if (!port.empty()) {
    if (port.front() != ':') return std::nullopt;
    port.remove_prefix(1);
    if (port.size() > 5 || !all_of(port, is_digit)) return std::nullopt;
  }
  const auto allowed = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_' ||
           c == ':' || c == '[' || c == ']';
  };
  if (name.empty() || !all_of(name, allowed)) return std::nullopt;
  return name;
}

// 127.0.0.0/8 written out, ::1, localhost.
bool names_this_machine(std::string_view name) {
  if (equals_ignoring_case(name, "localhost") || name == "[::1]") return true;
  if (!name.starts_with("127.")) return false;
  int parts = 1;
  int digits = 0;
  int value = 0;
  for (const char c : name) {
    if (c == '.') {
      if (digits == 0) return false;
      ++parts;
      digits = value = 0;
    } else if (!is_digit(c) || ++digits > 3 || (value = 10 * value + (c - '0')) > 255) {
      return false;
    }
  }
  return parts == 4 && digits > 0;
}

// The authority that the request is for: of an absolute target, else of Host.
std::string_view authority_of(const RequestHead& head, std::string_view host) {
  const std::string_view target = head.target;
  const std::size_t scheme = target.find("://");
  if (target.empty() || target.front() == '/' || scheme == target.npos) return host;
  const std::string_view rest = target.substr(scheme + 3);
  return rest.substr(0, rest.find_first_of("/?#"));
}

// What the page wants to send, client libraries add headers of their own; a fixed list if it does not say.
std::string_view allowed_headers(const RequestHead& head) {
  constexpr std::string_view kUsual = "authorization, content-type, x-api-key, x-request-id";
  constexpr std::size_t kLongest = 1024;
  const auto wanted = head.values("Access-Control-Request-Headers");
  const auto plain = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == ',' ||
           c == ' ';
  };
  const bool usable =
      wanted.size() == 1 && !wanted[0].empty() && wanted[0].size() <= kLongest && all_of(wanted[0], plain);
  return usable ? wanted[0] : kUsual;
}

}  // namespace

std::string key_problem(std::string_view key) {
  if (key.empty()) return "an API key must not be empty";
  if (!all_of(key, [](char c) { return c > 0x20 && c < 0x7f; }))
    return "an API key must be printable ASCII without blanks";
  return {};
}

std::optional<Denial> Access::check(const RequestHead& head, bool open) const {
  if (auto denial = check_host(head)) return denial;
  if (has_keys()) return open ? std::nullopt : check_key(head);
  const bool reads = head.method == "GET" || head.method == "HEAD" || head.method == "OPTIONS";
  if (reads) return std::nullopt;
  for (const std::string_view origin : head.values("Origin")) {
    if (!allowed_origin(origin)) {
      return Denial{403, "origin_not_allowed",
                    "web pages of this origin may not use the server; allow it with --cors-origin or ask for a key "
                    "with --api-key"};
    }
  }
  return std::nullopt;
}

std::optional<Denial> Access::check_host(const RequestHead& head) const {
  const auto hosts = head.values("Host");
  if (hosts.size() > 1 || (hosts.empty() && !head.http_1_0))
    return Denial{400, "bad_host", "an HTTP/1.1 request needs exactly one Host header"};
  if (hosts.empty()) return std::nullopt;
  const auto name = host_name(authority_of(head, hosts.front()));
  if (!name || !host_name(hosts.front())) return Denial{400, "bad_host", "the Host header is malformed"};
  if (policy_.loopback && !has_keys() && !names_this_machine(*name)) {
    return Denial{403, "host_not_allowed",
                  "this server only answers to the names of its own machine (localhost, 127.0.0.1, [::1]); to use "
                  "another name, ask for a key with --api-key"};
  }
  return std::nullopt;
}

std::optional<Denial> Access::check_key(const RequestHead& head) const {
  const Denial denial{401, "invalid_api_key", "a valid API key is needed: Authorization: Bearer KEY"};
  const auto bearers = head.values("Authorization");
  const auto keys = head.values("x-api-key");
  if (bearers.size() > 1 || keys.size() > 1 || (bearers.empty() && keys.empty())) return denial;
  bool right = true;
  for (const std::string_view value : bearers) {
    constexpr std::string_view kScheme = "bearer ";
    const bool bearer = equals_ignoring_case(value.substr(0, kScheme.size()), kScheme);
    right &= bearer && right_key(value.substr(kScheme.size()));
  }
  for (const std::string_view key : keys) right &= right_key(key);
  return right ? std::nullopt : std::optional(denial);
}

bool Access::right_key(std::string_view key) const {
  bool right = false;
  for (const std::string& known : policy_.api_keys) right |= equal_in_constant_time(known, key);
  return right;
}

bool Access::allowed_origin(std::string_view origin) const {
  for (const std::string& allowed : policy_.cors_origins) {
    if (allowed == "*" || equals_ignoring_case(allowed, origin)) return true;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    const auto name = host_name(origin.substr(scheme.size()));
    return name && names_this_machine(*name);
  }
  return false;
}

void Access::add_cors(const RequestHead& head, bool preflight, std::vector<Header>& headers) const {
  headers.push_back({"Vary", "Origin"});
  const auto origins = head.values("Origin");
  if (origins.size() != 1 || !allowed_origin(origins.front())) return;
  headers.push_back({"Access-Control-Allow-Origin", std::string(origins.front())});
  if (preflight) {
    headers.push_back({"Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"});
    headers.push_back({"Access-Control-Allow-Headers", std::string(allowed_headers(head))});
    headers.push_back({"Access-Control-Max-Age", "600"});
  } else {
    headers.push_back({"Access-Control-Expose-Headers", "x-request-id, x-lily-warning, retry-after"});
  }
}

}  // namespace lily::net
