// Who may use the server: API keys, web pages of foreign origin, and names rebound to this machine. Pure functions of a
// request head.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/http_server.h"

namespace lily::net {

struct AccessPolicy {
  bool loopback = true;                   // the server listens on a loopback address
  std::vector<std::string> api_keys;      // empty: no key is asked for
  std::vector<std::string> cors_origins;  // besides those of this machine; "*": all
};

struct Denial {
  int status = 0;
  std::string code;
  std::string message;
};

class Access {
 public:
  explicit Access(AccessPolicy policy) : policy_(std::move(policy)) {}

  // `open`: a route that needs no key. Checked in order:
  //  1. exactly one well-formed Host in HTTP/1.1 (400);
  //  2. on a loopback address without keys, Host names this machine (403): a web page may have rebound its own name;
  //  3. every credential that is sent is right, and there is one (401), unless `open`;
  //  4. without keys, a foreign Origin only reads (403).
  std::optional<Denial> check(const RequestHead& head, bool open) const;

  // Headers that let a page of an allowed origin read the answer; always Vary: Origin.
  void add_cors(const RequestHead& head, bool preflight, std::vector<Header>& headers) const;

  bool has_keys() const { return !policy_.api_keys.empty(); }

 private:
  bool allowed_origin(std::string_view origin) const;
  bool right_key(std::string_view key) const;
  std::optional<Denial> check_host(const RequestHead& head) const;
  std::optional<Denial> check_key(const RequestHead& head) const;

  AccessPolicy policy_;
};

// Why a key cannot be used (empty, blanks, control characters); empty if it can.
std::string key_problem(std::string_view key);

}  // namespace lily::net
