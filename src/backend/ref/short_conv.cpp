// Depthwise causal convolution and SiLU.
#include "backend/ref/short_conv.h"

#include <algorithm>

#include "base/check.h"
#include "ops/activations.h"

namespace lily::ref {

void short_conv(std::span<const float> x, std::span<const float> weight, std::span<float> tail, std::span<float> y) {
  const std::size_t channels = x.size(), width = weight.size() / channels;
  LILY_CHECK(weight.size() == width * channels && tail.size() == (width - 1) * channels && y.size() == channels);
  for (std::size_t c = 0; c < channels; ++c) {
    float sum = 0;
    for (std::size_t m = 0; m + 1 < width; ++m) sum += weight[c * width + m] * tail[m * channels + c];
    y[c] = ops::silu(sum + weight[c * width + width - 1] * x[c]);
  }
  std::copy(tail.begin() + static_cast<std::ptrdiff_t>(channels), tail.end(), tail.begin());
  std::copy(x.begin(), x.end(), tail.end() - static_cast<std::ptrdiff_t>(channels));
}

}  // namespace lily::ref
