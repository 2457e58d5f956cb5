// ops/attention.h
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention.h"

namespace lily::ref {

// One token over the n positions in the cache, itself included.
// q, gate, out [H, head_dim]; keys, values [n, K, head_dim] bfloat16, n >= 1.
void attention(const ops::AttentionHeads& heads, std::span<const float> q, std::span<const float> gate,
               std::span<const std::uint16_t> keys, std::span<const std::uint16_t> values, std::span<float> out);

}  // namespace lily::ref
