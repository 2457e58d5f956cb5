// The CPU backend's whole steps against the reference, and against itself: the same bits however the tokens are cut,
// batched, restored, or computed.
#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/ref/ref_backend.h"
#include "ops/logits.h"
#include "support/random_weights.h"

namespace lily {
namespace {

using Logits = std::vector<float>;

const testing::RandomWeights& random_model() {
  static const testing::RandomWeights weights(kLilyTiny, 7);
  return weights;
}

BackendOptions two_threads() {
  BackendOptions options;
  options.n_threads = 2;
  return options;
}

std::unique_ptr<Backend> make_cpu(const BackendOptions& options = two_threads()) {
  auto backend = cpu::make_backend(kLilyTiny, random_model().weights(), "random", options);
  if (!backend) ADD_FAILURE() << backend.error().message;
  return std::move(*backend);
}

// Sets LILY_CPU_ISA for one scope.
class IsaOverride {
 public:
  explicit IsaOverride(const char* isa) { setenv("LILY_CPU_ISA", isa, 1); }
  ~IsaOverride() { unsetenv("LILY_CPU_ISA"); }
};

std::vector<TokenId> random_tokens(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % kLilyTiny.vocab);
  return tokens;
}

std::unique_ptr<Sequence> create(Backend& backend, std::int64_t capacity) {
  auto sequence = backend.create(capacity);
  EXPECT_TRUE(sequence);
  return std::move(*sequence);
}

// Runs tokens[begin, end) in steps of at most `chunk`; returns the logits of all of them.
Logits run(Backend& backend, Sequence& sequence, std::span<const TokenId> tokens, std::size_t chunk) {
  Logits all(tokens.size() * kLilyTiny.vocab);
  for (std::size_t i = 0; i < tokens.size(); i += chunk) {
    const std::size_t n = std::min(chunk, tokens.size() - i);
    StepItem item{.sequence = &sequence,
                  .tokens = tokens.subspan(i, n),
                  .want = Want::AllLogits,
                  .logits = std::span(all).subspan(i * kLilyTiny.vocab, n * kLilyTiny.vocab)};
    const auto done = backend.step({&item, 1});
    EXPECT_TRUE(done) << done.error().message;
  }
  return all;
}

Logits run(Backend& backend, std::span<const TokenId> tokens, std::size_t chunk) {
  auto sequence = create(backend, std::ssize(tokens));
  return run(backend, *sequence, tokens, chunk);
}

// Mean over rows of |got - want| / |want| in the 2-norm.
double relative_error(const Logits& got, const Logits& want) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(double{got[i]} - double{want[i]}, 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

TEST(CpuBackend, AgreesWithTheReference) {
  auto reference = ref::make_backend(kLilyTiny, random_model().weights(), "random", {});
  ASSERT_TRUE(reference);
  const auto tokens = random_tokens(70, 1);
  const Logits want = run(**reference, tokens, 70);
  for (const char* activations : {"int16", "int8"}) {
    BackendOptions options = two_threads();
    options.activations = activations;
    auto cpu = make_cpu(options);
    const double error = relative_error(run(*cpu, tokens, 70), want);
    RecordProperty(std::string("relative_error_") + activations, std::to_string(error));
    std::printf("  %s: relative error of the logits %.2e\n", activations, error);
    // Random experts are unlike each other: one near tie in the router that int8 flips moves a whole row of logits.
    EXPECT_LT(error, std::string(activations) == "int16" ? 5e-3 : 0.4);
  }
}

}  // namespace
}  // namespace lily
