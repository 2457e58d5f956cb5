// One SwiGLU expert.
#include "backend/ref/experts.h"

#include <vector>

#include "ops/activations.h"

namespace lily::ref {

void expert(const ExpertMatrices& experts, std::int64_t id, std::span<const float> x, std::span<float> y) {
  std::vector<float> gate(static_cast<std::size_t>(experts.gate.out())), up(gate.size());
  experts.gate.apply(x, gate, id);
  experts.up.apply(x, up, id);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = ops::silu(gate[i]) * up[i];
  experts.down.apply(gate, y, id);
}

}  // namespace lily::ref
