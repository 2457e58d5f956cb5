// Choice of experts for one token.
//   logits [E] = router x, float32 from a float32 x (the 8-bit weights are never requantised)
//   the n_active largest logits win, ties go to the lower index; ids come in falling order of logit
//   pi = softmax(logits) over all E;  weight[k] = pi[id_k] / sum_k pi[id_k]
// The selection compares float32 logits: bfloat16 probabilities collapse into ties. An implementation may compute the
// weights as a softmax over the winners, which is the same number.
// NaN among the logits: NaN never wins over a number, ids stay valid and distinct, all weights are NaN (and so reach
// the logits of the model, where greedy_token() reports them).
// Tolerance: ids kExact, weights kFloat32.
#pragma once

#include "ops/tolerance.h"

namespace lily::ops {

inline constexpr Tolerance kRouterTolerance = kFloat32;

}  // namespace lily::ops
