// The inner loops of the reference. They are written with 16 explicit lanes, so that the result is the same bits
// whichever instruction set the compiler uses; on x86-64 they are compiled for several and chosen at start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lily::ref {

// ifunc resolvers run before a sanitizer's runtime is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LILY_REF_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LILY_REF_CLONES
#endif

// y[r * y_stride] = sum_i w[i] * rows[r, i] for rows [n_rows, n]; n is a multiple of 32. Each sum has the same order of
// additions however many rows there are.
void dot_rows(const float* w, const float* rows, std::int64_t n_rows, std::int64_t n, float* y, std::int64_t y_stride);

// y[i] += sum_r p[r] * rows[r, i] for rows [n_rows, n], in the order of the rows; n is a multiple of 16.
void add_weighted_rows(const float* p, const float* rows, std::int64_t n_rows, std::int64_t n, float* y);

// y[i] += s * x[i]; n is a multiple of 16.
void add_scaled(float* y, float s, const float* x, std::int64_t n);

// One row of an affine matrix: out[i] = scale * code + bias, for `n_groups` groups of 64. Nothing is aligned.
void dequantise(const std::byte* codes, const std::byte* scales, const std::byte* biases, int bits,
                std::int64_t n_groups, float* out);

// bfloat16 to float32; n is a multiple of 16.
void widen(const std::uint16_t* x, std::int64_t n, float* out);

}  // namespace lily::ref
