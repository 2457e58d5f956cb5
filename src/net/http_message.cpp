// The parts of a message that need no socket.
#include <algorithm>

#include "net/http_server.h"

namespace lily::net {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::vector<std::string_view> RequestHead::values(std::string_view name) const {
  std::vector<std::string_view> found;
  for (const Header& header : headers) {
    if (equals_ignoring_case(header.name, name)) found.push_back(header.value);
  }
  return found;
}

std::string_view RequestHead::path() const {
  std::string_view rest = target;
  if (const std::size_t scheme = rest.find("://"); scheme != rest.npos && rest.front() != '/') {
    rest.remove_prefix(scheme + 3);
    const std::size_t slash = rest.find('/');
    if (slash == rest.npos) return "/";
    rest.remove_prefix(slash);
  }
  return rest.substr(0, rest.find_first_of("?#"));
}

}  // namespace lily::net
