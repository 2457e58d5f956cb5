// Short convolution and gated delta rule against double, the chunked form against the recurrence, and why the memory
// is float32.
#include "backend/ref/gated_delta.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "backend/ref/rms_norm.h"
#include "backend/ref/short_conv.h"
#include "ops/gated_delta.h"
#include "ops/short_conv.h"
#include "support/random_weights.h"
#include "tensor/view.h"

namespace lily {
namespace {

using testing::random_floats;

// The definition in double. `round` is applied to the memory after each token.
template <class Round>
void step_in_double(std::span<const float> q, std::span<const float> k, std::span<const float> v, double g, double beta,
                    std::vector<double>& memory, std::vector<double>& out, Round round) {
  const std::size_t d_k = k.size(), d_v = v.size();
  const double decay = std::exp(g);
  out.assign(d_v, 0.0);
  for (std::size_t j = 0; j < d_v; ++j) {
    double read = 0;
    for (std::size_t i = 0; i < d_k; ++i) read += (memory[i * d_v + j] *= decay) * double{k[i]};
    const double delta = beta * (double{v[j]} - read);
    for (std::size_t i = 0; i < d_k; ++i) {
      double& cell = memory[i * d_v + j];
      cell = round(cell + double{k[i]} * delta);
      out[j] += cell * double{q[i]};
    }
  }
}

constexpr auto kKeep = [](double value) { return value; };
constexpr auto kToBfloat16 = [](double value) {
  return double{bf16_to_float(float_to_bf16(static_cast<float>(value)))};
};

std::vector<float> unit_vector(std::size_t n, std::uint64_t seed) {
  auto x = random_floats(n, seed);
  ref::l2_norm(x, 1.0);
  return x;
}

double worst(std::span<const float> got, const std::vector<double>& want) {
  double error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) error = std::max(error, std::fabs(double{got[i]} - want[i]));
  return error;
}

TEST(GatedDelta, MatchesDoubleOverASequence) {
  constexpr std::size_t d = 128;
  std::vector<float> memory(d * d, 0.0f), out(d);
  std::vector<double> exact(d * d, 0.0), want;
  for (std::uint64_t t = 0; t < 300; ++t) {
    const auto q = unit_vector(d, 3 * t), k = unit_vector(d, 3 * t + 1), v = random_floats(d, 3 * t + 2);
    const float g = -0.01f * static_cast<float>(t % 50), beta = 0.02f * static_cast<float>(t % 50);
    ref::gated_delta_step(q, k, v, g, beta, memory, out);
    step_in_double(q, k, v, g, beta, exact, want, kKeep);
    const std::vector<float> want_float(want.begin(), want.end());
    ASSERT_LE(ops::tolerance_used(out, want_float, ops::kGatedDeltaTolerance), 1.0) << t;
  }
}

// With beta 1 and no decay the memory returns what was stored at a key; decay acts before the read.
TEST(GatedDelta, StoresCorrectsAndDecaysFirst) {
  constexpr std::size_t d = 32;
  std::vector<float> key(d, 0.0f), memory(d * d, 0.0f), out(d);
  key[3] = 1.0f;
  const auto first = random_floats(d, 1), second = random_floats(d, 2);
  ref::gated_delta_step(key, key, first, 0.0f, 1.0f, memory, out);
  EXPECT_EQ(out, first);
  ref::gated_delta_step(key, key, second, 0.0f, 1.0f, memory, out);
  for (std::size_t i = 0; i < d; ++i) EXPECT_NEAR(out[i], second[i], 1e-6);  // replaced, not added
  ref::gated_delta_step(key, key, second, static_cast<float>(std::log(0.5)), 0.0f, memory, out);
  for (std::size_t i = 0; i < d; ++i) EXPECT_NEAR(out[i], 0.5f * second[i], 1e-6);
}

TEST(GatedDelta, N09DecayOfZeroForgetsAll) {
  constexpr std::size_t d = 32;
  auto memory = random_floats(d * d, 5, 1e30f);
  const std::vector<float> zero(d, 0.0f);
  std::vector<float> out(d, 1.0f);
  ref::gated_delta_step(unit_vector(d, 1), unit_vector(d, 2), zero, -HUGE_VALF, 1.0f, memory, out);
  for (float value : memory) EXPECT_EQ(value, 0.0f);
  for (float value : out) EXPECT_EQ(value, 0.0f);
}

// N05: 100,000 steps with a decay of 0.9999. Float32 stays at the level of its rounding; a bfloat16 memory loses
// what a slow decay and small corrections would change.
TEST(GatedDelta, N05MemoryIsFloat32ForAReason) {
  constexpr std::size_t d = 16;
  std::vector<float> memory(d * d, 0.0f), out(d);
  std::vector<double> exact(d * d, 0.0), rough(d * d, 0.0), want, rough_out;
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  double float_error = 0, bf16_error = 0, largest = 0;
  std::vector<float> q(d), k(d), v(d);
  for (int t = 0; t < 100000; ++t) {
    for (auto* x : {&q, &k, &v})
      for (float& value : *x) value = normal(random);
    ref::l2_norm(q, 1.0);
    ref::l2_norm(k, 1.0);
    const float g = -1e-4f, beta = 0.05f;
    ref::gated_delta_step(q, k, v, g, beta, memory, out);
    step_in_double(q, k, v, g, beta, exact, want, kKeep);
    step_in_double(q, k, v, g, beta, rough, rough_out, kToBfloat16);
    float_error = std::max(float_error, worst(out, want));
    for (std::size_t i = 0; i < d; ++i) {
      bf16_error = std::max(bf16_error, std::fabs(rough_out[i] - want[i]));
      largest = std::max(largest, std::fabs(want[i]));
    }
  }
  RecordProperty("float32_error", std::to_string(float_error / largest));
  RecordProperty("bfloat16_error", std::to_string(bf16_error / largest));
  EXPECT_LT(float_error, 2e-5 * largest);
  EXPECT_GT(bf16_error, 1e-2 * largest);
}

using Matrix = std::vector<std::vector<double>>;

// One chunk of the chunked form, in double; letters as in docs/model.md. Returns O and moves S on.
Matrix chunk(const Matrix& q, const Matrix& k, const Matrix& v, const std::vector<double>& beta,
             const std::vector<double>& g, Matrix& s) {
  const std::size_t n = q.size(), d = s.size();
  std::vector<double> gamma(n);
  for (std::size_t i = 0; i < n; ++i) gamma[i] = g[i] + (i ? gamma[i - 1] : 0.0);
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  // V' = T diag(beta) (V - diag(e^gamma) K S), T = (I + A)^-1, by forward substitution.
  Matrix corrected(n, std::vector<double>(d));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < d; ++c) {
      double held = 0;
      for (std::size_t r = 0; r < d; ++r) held += k[i][r] * s[r][c];
      double value = beta[i] * (v[i][c] - std::exp(gamma[i]) * held);
      for (std::size_t j = 0; j < i; ++j)
        value -= beta[i] * dot(k[i], k[j]) * std::exp(gamma[i] - gamma[j]) * corrected[j][c];
      corrected[i][c] = value;
    }
  Matrix out(n, std::vector<double>(d));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < d; ++c) {
      for (std::size_t r = 0; r < d; ++r) out[i][c] += std::exp(gamma[i]) * q[i][r] * s[r][c];
      for (std::size_t j = 0; j <= i; ++j)
        out[i][c] += dot(q[i], k[j]) * std::exp(gamma[i] - gamma[j]) * corrected[j][c];
    }
  for (std::size_t r = 0; r < d; ++r)
    for (std::size_t c = 0; c < d; ++c) {
      s[r][c] *= std::exp(gamma[n - 1]);
      for (std::size_t i = 0; i < n; ++i) s[r][c] += std::exp(gamma[n - 1] - gamma[i]) * k[i][r] * corrected[i][c];
    }
  return out;
}

// Keys that nearly repeat are where a careless inverse loses everything.
TEST(GatedDelta, ChunkedFormEqualsTheRecurrence) {
  constexpr std::size_t d = 24, n = 100;
  for (double spread : {1.0, 0.01}) {
    std::mt19937_64 random(9);
    std::normal_distribution<double> normal;
    std::vector<std::vector<float>> q(n), k(n), v(n);
    std::vector<double> beta(n), g(n);
    const auto common = unit_vector(d, 4);
    for (std::size_t t = 0; t < n; ++t) {
      for (std::size_t i = 0; i < d; ++i) {
        q[t].push_back(static_cast<float>(normal(random)));
        k[t].push_back(static_cast<float>(spread * normal(random)) + (spread < 1 ? common[i] : 0.0f));
        v[t].push_back(static_cast<float>(normal(random)));
      }
      ref::l2_norm(k[t], 1.0);
      beta[t] = 1.0 / (1.0 + std::exp(-normal(random)));
      g[t] = -0.3 * std::fabs(normal(random));
    }
    for (std::size_t chunk_size : {1, 7, 64}) {
      std::vector<double> memory(d * d, 0.1), want;
      Matrix s(d, std::vector<double>(d, 0.1));
      for (std::size_t begin = 0; begin < n; begin += chunk_size) {
        const std::size_t end = std::min(n, begin + chunk_size);
        Matrix qs, ks, vs;
        for (std::size_t t = begin; t < end; ++t) {
          qs.emplace_back(q[t].begin(), q[t].end());
          ks.emplace_back(k[t].begin(), k[t].end());
          vs.emplace_back(v[t].begin(), v[t].end());
        }
        const auto part = [&](const std::vector<double>& all) {
          return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                     all.begin() + static_cast<std::ptrdiff_t>(end));
        };
        const Matrix out = chunk(qs, ks, vs, part(beta), part(g), s);
        for (std::size_t t = begin; t < end; ++t) {
          step_in_double(q[t], k[t], v[t], g[t], beta[t], memory, want, kKeep);
          for (std::size_t c = 0; c < d; ++c) ASSERT_NEAR(out[t - begin][c], want[c], 1e-11) << t;
        }
      }
    }
  }
}

TEST(ShortConv, NewestSampleTakesTheLastTap) {
  constexpr std::size_t channels = 3;
  const std::vector<float> weight{0.5f, -1.0f, 2.0f, 3.0f, 0.1f, 0.2f, 0.3f, 0.4f, -1.0f, -2.0f, -3.0f, -4.0f};
  std::vector<float> tail(3 * channels, 0.0f), y(channels);
  std::vector<std::vector<float>> past(3, std::vector<float>(channels, 0.0f));
  for (std::uint64_t t = 0; t < 9; ++t) {
    const auto x = random_floats(channels, t, 2.0f);
    past.push_back(x);
    ref::short_conv(x, weight, tail, y);
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::size_t m = 0; m < 4; ++m) sum += double{weight[c * 4 + m]} * double{past[t + m][c]};
      EXPECT_NEAR(y[c], sum / (1 + std::exp(-sum)), 1e-6);
    }
  }
}

}  // namespace
}  // namespace lily
