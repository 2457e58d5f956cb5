// What conformance tests do with a backend: run tokens, keep the logits, compare them to the bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace lily::testing {

using Logits = std::vector<float>;  // [T, V]

// Sets LILY_CPU_ISA for one scope.
class IsaOverride {
 public:
  explicit IsaOverride(const char* isa) { setenv("LILY_CPU_ISA", isa, 1); }
  ~IsaOverride() { unsetenv("LILY_CPU_ISA"); }
};

inline std::unique_ptr<Sequence> create(Backend& backend, std::int64_t capacity) {
  auto sequence = backend.create(capacity);
  EXPECT_TRUE(sequence);
  return std::move(*sequence);
}

// Runs the tokens in steps of at most `chunk`; returns the logits of all of them.
inline Logits run(Backend& backend, Sequence& sequence, std::span<const TokenId> tokens, std::size_t chunk) {
  const auto vocab = static_cast<std::size_t>(backend.shape().vocab);
  Logits all(tokens.size() * vocab);
  for (std::size_t i = 0; i < tokens.size(); i += chunk) {
    const std::size_t n = std::min(chunk, tokens.size() - i);
    StepItem item{.sequence = &sequence,
                  .tokens = tokens.subspan(i, n),
                  .want = Want::AllLogits,
                  .logits = std::span(all).subspan(i * vocab, n * vocab)};
    const auto done = backend.step({&item, 1});
    EXPECT_TRUE(done) << done.error().message;
  }
  return all;
}

inline Logits run(Backend& backend, std::span<const TokenId> tokens, std::size_t chunk) {
  auto sequence = create(backend, std::ssize(tokens));
  return run(backend, *sequence, tokens, chunk);
}

inline void expect_same(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(got), std::as_bytes(want))) << what;
}

}  // namespace lily::testing
