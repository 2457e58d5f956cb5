// The CPU backend behind the seam (backend/backend.h), also for weights that are not in a checkpoint.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "backend/cpu/weights.h"

namespace lily::cpu {

// `shape` is one of kShapes. The bytes behind the weights are copied. `model_key` names the weights in serialised
// snapshots. Errors: InvalidArgument (options), Unsupported (LILY_CPU_ISA), OutOfMemory.
Result<std::unique_ptr<Backend>> make_backend(const Shape& shape, const TextWeights& weights,
                                              std::string_view model_key, const BackendOptions& options,
                                              const std::function<void(const AffineView&)>& release = {});

}  // namespace lily::cpu
