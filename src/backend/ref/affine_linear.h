// ops/affine_linear.h: a quantised matrix and its product with a few vectors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/view.h"

namespace lily::ref {

// Reads the checkpoint's bytes row by row, or a float32 copy made once (`keep_floats`): the same values, faster.
// The bytes behind the view outlive the matrix.
class AffineMatrix {
 public:
  AffineMatrix() = default;
  AffineMatrix(const AffineView& view, bool keep_floats);

  std::int64_t out() const { return view_.out; }
  std::int64_t in() const { return view_.in; }

  // y [T, out] = x [T, in] * W^T of one expert. Each row of y depends on its row of x alone.
  void apply(std::span<const float> x, std::span<float> y, std::int64_t expert = 0) const;
  // One row of W as floats [in]; for the embedding.
  void row(std::int64_t index, std::span<float> values) const;

 private:
  const float* row_floats(std::int64_t index, std::vector<float>& buffer) const;

  AffineView view_;
  std::vector<float> floats_;  // [n_experts, out, in] or empty
};

}  // namespace lily::ref
