// Stop strings, found across the borders of tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lily::api {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  // `text` has grown from `old_size` and had no stop before. Where it ends if there is one now: before the stop that is
  // complete first, which is the same however the text was cut into pieces.
  std::optional<std::size_t> find(std::string_view text, std::size_t old_size) const;

 private:
  std::vector<std::string> stops_;
  std::size_t longest_ = 0;
};

}  // namespace lily::api
