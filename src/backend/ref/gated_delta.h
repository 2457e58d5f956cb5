// ops/gated_delta.h: the recurrence of one token and one value head.
#pragma once

#include <span>

namespace lily::ref {

// q, k [d_k] normalised (q carries the 1 / sqrt(d)); v, out [d_v]; memory [d_k, d_v].
void gated_delta_step(std::span<const float> q, std::span<const float> k, std::span<const float> v, float log_decay,
                      float beta, std::span<float> memory, std::span<float> out);

}  // namespace lily::ref
