// ops/router.h
#pragma once

#include <cstdint>
#include <span>

namespace lily::ref {

// logits [E]; ids and weights [n_active], in falling order of logit.
void route(std::span<const float> logits, std::span<std::int32_t> ids, std::span<float> weights);

}  // namespace lily::ref
