// ops/rope.h
#pragma once

#include <span>

namespace lily::ref {

// Turns the first 2 * cos.size() dims of a head in place; cos and sin from ops::rope_cos_sin().
void rope(std::span<float> head, std::span<const float> cos, std::span<const float> sin);

}  // namespace lily::ref
