// Root-mean-square and l2 normalisation; sums of squares in double.
#include "backend/ref/rms_norm.h"

#include <cmath>

#include "base/check.h"
#include "model/shape.h"
#include "ops/gated_delta.h"

namespace lily::ref {
namespace {

double sum_of_squares(std::span<const float> x) {
  double sum = 0;
  for (float value : x) sum += double{value} * double{value};
  return sum;
}

}  // namespace

void rms_norm(std::span<const float> x, std::span<const float> weight, std::span<float> y) {
  LILY_CHECK(x.size() == weight.size() && x.size() == y.size());
  const double mean = sum_of_squares(x) / static_cast<double>(x.size());
  const float scale = static_cast<float>(1.0 / std::sqrt(mean + double{kRmsEps}));
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
}

void l2_norm(std::span<float> x, double scale) {
  const float factor = static_cast<float>(scale / std::sqrt(sum_of_squares(x) + double{ops::kL2NormEps}));
  for (float& value : x) value *= factor;
}

}  // namespace lily::ref
