// ops/short_conv.h
#pragma once

#include <span>

namespace lily::ref {

// One token. x, y [channels]; weight [channels, W]; tail [W - 1, channels], oldest first, moved on by one sample.
// y may not be x.
void short_conv(std::span<const float> x, std::span<const float> weight, std::span<float> tail, std::span<float> y);

}  // namespace lily::ref
