#include "api/stop_matcher.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace lily::api {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::optional<std::size_t> StopMatcher::find(std::string_view text, std::size_t old_size) const {
  const std::size_t from = old_size >= longest_ ? old_size - longest_ + 1 : 0;            // a stop may have begun here
  std::pair<std::size_t, std::size_t> first{std::numeric_limits<std::size_t>::max(), 0};  // end, begin
  for (const std::string& stop : stops_) {
    const std::size_t begin = text.find(stop, std::min(from, text.size()));
    if (begin != text.npos) first = std::min(first, {begin + stop.size(), begin});
  }
  if (first.first == std::numeric_limits<std::size_t>::max()) return std::nullopt;
  return first.second;
}

}  // namespace lily::api
