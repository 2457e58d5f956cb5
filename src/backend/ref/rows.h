// Slices of row-major buffers, and a projection into a fresh one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/ref/affine_linear.h"

namespace lily::ref {

// Row `index` of a buffer of rows of `width` elements.
template <class T>
std::span<T> row(std::span<T> buffer, std::size_t index, std::size_t width) {
  return buffer.subspan(index * width, width);
}

// [T, out] = x [T, in] * W^T
inline std::vector<float> apply(const AffineMatrix& matrix, std::span<const float> x) {
  std::vector<float> y(x.size() / static_cast<std::size_t>(matrix.in()) * static_cast<std::size_t>(matrix.out()));
  matrix.apply(x, y);
  return y;
}

}  // namespace lily::ref
