// The reference behind the seam (backend/backend.h), also for weights that are not in a checkpoint.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "model/checkpoint.h"

namespace lily::ref {

// The bytes behind the weights outlive the backend. `model_key` names the weights in serialised snapshots.
Result<std::unique_ptr<Backend>> make_backend(const Shape& shape, const TextWeights& weights,
                                              std::string_view model_key, const BackendOptions& options);

}  // namespace lily::ref
