// Products with quantised matrices: dequantise a row, then one dot product a vector.
#include "backend/ref/affine_linear.h"

#include <algorithm>

#include "backend/ref/vector.h"
#include "base/check.h"
#include "model/shape.h"

namespace lily::ref {
namespace {

void dequantise_row(const AffineView& view, std::int64_t row, float* out) {
  const std::int64_t n_groups = view.in / kGroupSize;
  dequantise(view.weight.data + row * view.in * view.bits / 8, view.scales.data + row * n_groups * 2,
             view.biases.data + row * n_groups * 2, view.bits, n_groups, out);
}

}  // namespace

AffineMatrix::AffineMatrix(const AffineView& view, bool keep_floats) : view_(view) {
  LILY_CHECK((view.bits == 4 || view.bits == 8) && view.in % kGroupSize == 0);
  if (!keep_floats) return;
  const std::int64_t n_rows = view.n_experts * view.out;
  floats_.resize(static_cast<std::size_t>(n_rows * view.in));
  for (std::int64_t row = 0; row < n_rows; ++row) dequantise_row(view, row, floats_.data() + row * view.in);
}

const float* AffineMatrix::row_floats(std::int64_t index, std::vector<float>& buffer) const {
  if (!floats_.empty()) return floats_.data() + index * view_.in;
  buffer.resize(static_cast<std::size_t>(view_.in));
  dequantise_row(view_, index, buffer.data());
  return buffer.data();
}

void AffineMatrix::apply(std::span<const float> x, std::span<float> y, std::int64_t expert) const {
  const std::int64_t n_tokens = static_cast<std::int64_t>(x.size()) / view_.in;
  LILY_CHECK(std::ssize(x) == n_tokens * view_.in && std::ssize(y) == n_tokens * view_.out);
  std::vector<float> buffer;
  for (std::int64_t o = 0; o < view_.out; ++o) {
    const float* w = row_floats(expert * view_.out + o, buffer);
    dot_rows(w, x.data(), n_tokens, view_.in, y.data() + o, view_.out);
  }
}

void AffineMatrix::row(std::int64_t index, std::span<float> values) const {
  LILY_CHECK(std::ssize(values) == view_.in);
  std::vector<float> buffer;
  std::copy_n(row_floats(index, buffer), view_.in, values.data());
}

}  // namespace lily::ref
