// Top-k of float32 logits and a softmax renormalised over the winners.
#include "backend/ref/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace lily::ref {

void route(std::span<const float> logits, std::span<std::int32_t> ids, std::span<float> weights) {
  LILY_CHECK(ids.size() == weights.size() && ids.size() <= logits.size() && !ids.empty());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Falling logit, NaN behind every number; stable, so that ties keep the lower index first.
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (std::isnan(y) && !std::isnan(x));
  });

  const double highest = double{logits[static_cast<std::size_t>(order[0])]};
  const auto exponential = [&](std::int32_t e) {
    return std::exp(double{logits[static_cast<std::size_t>(e)]} - highest);
  };
  double total = 0, chosen = 0;  // over all E, over the winners
  for (std::int32_t e : order) total += exponential(e);
  for (std::size_t i = 0; i < ids.size(); ++i) chosen += exponential(order[i]) / total;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = order[i];
    weights[i] = static_cast<float>(exponential(order[i]) / total / chosen);
  }
}

}  // namespace lily::ref
