// What one token costs by arithmetic alone: bytes read and operations done. The limits that bench measures against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/shape.h"

namespace lily::apps {

// Packed weights that a decode step of `batch` sequences reads. Routed experts are those that are expected to be
// touched when every token chooses its experts uniformly and independently: E * (1 - (1 - active/E)^batch).
double step_weight_bytes(const Shape& shape, int batch);

// Recurrent state, float32, and conv tail, bfloat16, read and written once a token.
double state_bytes(const Shape& shape);

// Keys and values, bfloat16, that a decoded token reads of every token before it.
double kv_bytes(const Shape& shape);

// All bytes of a decode step: weights, states of all sequences, and their keys and values at that context.
double decode_step_bytes(const Shape& shape, int batch, std::int64_t context);

// Operations to run a prompt, a multiplication and an addition counted as two, with logits of the last token only.
double prefill_flops(const Shape& shape, std::int64_t n_tokens);

}  // namespace lily::apps
