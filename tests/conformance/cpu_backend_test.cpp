// The CPU backend's whole steps against the reference, and against itself: the same bits however the tokens are cut,
// batched, restored, or computed.
#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/ref/ref_backend.h"
#include "ops/logits.h"
#include "support/backend_support.h"
#include "support/random_weights.h"

namespace lily {
namespace {

using testing::create;
using testing::expect_same;
using testing::IsaOverride;
using testing::Logits;
using testing::run;

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
  const auto tokens = testing::random_tokens(70, kLilyTiny.vocab, 1);
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

TEST(CpuBackend, SameBitsOnEveryInstructionSet) {
  const auto tokens = testing::random_tokens(67, kLilyTiny.vocab, 2);
  for (const char* activations : {"int16", "int8"}) {
    BackendOptions options = two_threads();
    options.activations = activations;
    Logits want;
    for (const cpu::Kernels* table : cpu::runnable_kernels()) {
      const IsaOverride isa(std::string(table->name).c_str());
      auto cpu = make_cpu(options);
      EXPECT_NE(cpu->description().find(table->name), std::string::npos) << cpu->description();
      const Logits got = run(*cpu, tokens, 67);
      if (want.empty()) want = got;
      expect_same(got, want, std::string(table->name));
    }
  }
}

TEST(CpuBackend, RefusesAnUnknownInstructionSet) {
  const IsaOverride isa("sse9");
  const auto made = cpu::make_backend(kLilyTiny, random_model().weights(), "random", two_threads());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::Unsupported);
}

TEST(CpuBackend, RefusesUnknownActivations) {
  BackendOptions options = two_threads();
  options.activations = "int4";
  const auto made = cpu::make_backend(kLilyTiny, random_model().weights(), "random", options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::InvalidArgument);
}

TEST(CpuBackend, N06_SameBitsForAnyCutOfThePrompt) {
  auto cpu = make_cpu();
  for (std::size_t n : {1, 2, 3, 5, 8, 9, 63, 64, 65, 70, 131}) {
    const auto tokens = testing::random_tokens(n, kLilyTiny.vocab, 3);
    const Logits want = run(*cpu, tokens, n);
    for (std::size_t chunk : {1, 2, 3, 63, 64, 65})
      if (chunk < n) expect_same(run(*cpu, tokens, chunk), want, fmt::format("{} tokens by {}", n, chunk));
  }
}

TEST(CpuBackend, SameBitsForAnyNumberOfThreads) {
  // 1,100 tokens are three spans of attention: the last token's spans are shared out among threads, or not.
  const auto tokens = testing::random_tokens(1100, kLilyTiny.vocab, 4);
  Logits want;
  for (int n_threads : {0, 1, 2, 3, 7}) {  // 0: the backend chooses for each step
    BackendOptions options;
    options.n_threads = n_threads;
    auto cpu = make_cpu(options);
    auto sequence = create(*cpu, 1100);
    const Logits prompt = run(*cpu, *sequence, std::span(tokens).first(1096), 500);
    const Logits last = run(*cpu, *sequence, std::span(tokens).subspan(1096), 1);
    if (want.empty()) want = last;
    expect_same(last, want, fmt::format("{} threads", n_threads));
  }
}

TEST(CpuBackend, N04_SameBitsInAnyCompany) {
  auto cpu = make_cpu();
  const auto tokens = testing::random_tokens(30, kLilyTiny.vocab, 5);
  const Logits want = run(*cpu, tokens, 30);
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    // Ours at a random place among others of random lengths, cut at random.
    auto ours = create(*cpu, 30);
    Logits got(want.size());
    for (std::size_t done = 0; done < tokens.size();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % 12, tokens.size() - done);
      const std::size_t n_others = random() % 5, place = random() % (n_others + 1);
      std::vector<std::unique_ptr<Sequence>> others;
      std::vector<std::vector<TokenId>> other_tokens;
      std::vector<StepItem> items;
      for (std::size_t i = 0; i <= n_others; ++i) {
        StepItem item;
        if (i == place) {
          item.sequence = ours.get();
          item.tokens = std::span(tokens).subspan(done, n);
          item.want = Want::AllLogits;
          item.logits = std::span(got).subspan(done * kLilyTiny.vocab, n * kLilyTiny.vocab);
        } else {
          other_tokens.push_back(testing::random_tokens(1 + random() % 40, kLilyTiny.vocab, random()));
          others.push_back(create(*cpu, 64));
          item.sequence = others.back().get();
          item.tokens = other_tokens.back();
          item.want = random() % 2 == 0 ? Want::Greedy : Want::Nothing;
        }
        items.push_back(item);
      }
      ASSERT_TRUE(cpu->step(items));
      done += n;
    }
    expect_same(got, want, fmt::format("round {}", round));
  }
}

TEST(CpuBackend, ASnapshotContinuesWithTheSameBits) {
  auto cpu = make_cpu();
  const auto tokens = testing::random_tokens(140, kLilyTiny.vocab, 7);
  const std::span all(tokens);
  const Logits want = run(*cpu, tokens, 140);
  for (std::size_t at : {0, 1, 63, 64, 65, 100}) {
    auto first = create(*cpu, 140);
    if (at > 0) run(*cpu, *first, all.first(at), 50);
    auto snapshot = cpu->snapshot(*first);
    ASSERT_TRUE(snapshot);
    EXPECT_EQ((*snapshot)->length(), static_cast<std::int64_t>(at));
    // The first goes another way before the second continues from the snapshot: neither may see the other.
    run(*cpu, *first, testing::random_tokens(20, kLilyTiny.vocab, 8), 20);
    const auto bytes = cpu->serialize(**snapshot);
    ASSERT_TRUE(bytes);
    const auto loaded = cpu->deserialize(*bytes);
    ASSERT_TRUE(loaded) << loaded.error().message;
    for (const auto& from : {*snapshot, *loaded}) {
      auto second = cpu->restore(*from, 140);
      ASSERT_TRUE(second);
      const Logits got = run(*cpu, **second, all.subspan(at), 33);
      expect_same(got, Logits(want.begin() + static_cast<std::ptrdiff_t>(at * kLilyTiny.vocab), want.end()),
                  fmt::format("from {}", at));
    }
  }
}

std::vector<const void*> pages_of(const Snapshot& snapshot) {
  std::vector<const void*> found;
  snapshot.visit_pages([&](const void* page, std::size_t bytes) {
    EXPECT_GT(bytes, 0u);
    found.push_back(page);
  });
  return found;
}

TEST(CpuBackend, SnapshotsShareWholePages) {
  auto cpu = make_cpu();
  const auto tokens = testing::random_tokens(200, kLilyTiny.vocab, 9);
  auto sequence = create(*cpu, 200);
  run(*cpu, *sequence, std::span(tokens).first(130), 130);
  const auto before = *cpu->snapshot(*sequence);
  run(*cpu, *sequence, std::span(tokens).subspan(130), 70);
  const auto after = *cpu->snapshot(*sequence);
  const auto a = pages_of(*before), b = pages_of(*after);
  ASSERT_EQ(a.size(), 3u);
  ASSERT_EQ(b.size(), 4u);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);  // written on after the first snapshot: a copy
}

TEST(CpuBackend, SnapshotsInsideAStepShareTheirPages) {
  auto cpu = make_cpu();
  const auto tokens = testing::random_tokens(100, kLilyTiny.vocab, 9);
  auto sequence = create(*cpu, 200);
  std::vector<SnapshotMark> marks{{.at = 10}, {.at = 20}, {.at = 70}};
  StepItem item{.sequence = sequence.get(), .tokens = tokens, .marks = marks};
  ASSERT_TRUE(cpu->step({&item, 1}));
  EXPECT_EQ(pages_of(*marks[0].snapshot), pages_of(*marks[1].snapshot));
  const auto last = pages_of(*marks[2].snapshot);
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0], pages_of(*marks[0].snapshot).front());
  run(*cpu, *sequence, tokens, 100);
  EXPECT_NE(pages_of(**cpu->snapshot(*sequence))[1], last[1]);  // the sequence goes on in a copy
}

TEST(CpuBackend, DamagedSavedStatesAreRefused) {
  auto cpu = make_cpu();
  auto sequence = create(*cpu, 8);
  run(*cpu, *sequence, testing::random_tokens(5, kLilyTiny.vocab, 1), 5);
  const auto bytes = *cpu->serialize(**cpu->snapshot(*sequence));
  for (std::size_t n : {std::size_t{0}, std::size_t{7}, std::size_t{40}, bytes.size() / 2, bytes.size() - 1})
    EXPECT_FALSE(cpu->deserialize(std::span(bytes).first(n))) << n;
  for (std::size_t at : {0, 8, 12, 16, 23, 24, 32, 41}) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{0x40};
    EXPECT_FALSE(cpu->deserialize(damaged)) << at;
  }
  auto longer = bytes;
  longer.push_back({});
  EXPECT_FALSE(cpu->deserialize(longer));
}

TEST(CpuBackend, GreedyIsTheHighestLogitAndRespectsTheMask) {
  BackendOptions options = two_threads();
  options.n_tokens = 1003;
  auto cpu = make_cpu(options);
  const auto tokens = testing::random_tokens(24, kLilyTiny.vocab, 10);
  const Logits all = run(*cpu, tokens, 24);
  for (std::size_t n = 1; n <= tokens.size(); ++n) {
    const auto row = std::span(all).subspan((n - 1) * kLilyTiny.vocab, kLilyTiny.vocab);
    for (std::size_t id = 1003; id < row.size(); ++id) ASSERT_EQ(row[id], -INFINITY);
    auto sequence = create(*cpu, 24);
    StepItem item;
    item.sequence = sequence.get();
    item.tokens = std::span(tokens).first(n);
    item.want = Want::Greedy;
    ASSERT_TRUE(cpu->step({&item, 1}));
    EXPECT_EQ(item.greedy, ops::greedy_token(row));
    Logits last(kLilyTiny.vocab, 7.0f);
    auto again = create(*cpu, 24);
    item.sequence = again.get();
    item.want = Want::LastLogits;
    item.logits = last;
    ASSERT_TRUE(cpu->step({&item, 1}));
    expect_same(last, Logits(row.begin(), row.end()), "last logits");
  }
}

TEST(CpuBackend, ManyTokensOfOneKindAndTheLargestBatch) {
  // All tokens alike go to the same experts: one list of every row, the others empty.
  auto reference = ref::make_backend(kLilyTiny, random_model().weights(), "random", {});
  ASSERT_TRUE(reference);
  BackendOptions options = two_threads();
  options.max_batch_tokens = 200;
  auto cpu = make_cpu(options);
  EXPECT_EQ(cpu->max_batch_tokens(), 200);
  const std::vector<TokenId> tokens(200, 77);
  const double error = relative_error(run(*cpu, tokens, 200), run(**reference, tokens, 200));
  // Looser than above: two hundred equal tokens leave the same near ties of the router at every position.
  EXPECT_LT(error, 2e-2);
}

TEST(CpuBackend, LoadingReportsItsProgressAndReleasesWhatItRead) {
  BackendOptions options = two_threads();
  std::size_t last = 0, total = 0, released = 0;
  options.progress = [&](std::size_t done, std::size_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  };
  auto made = cpu::make_backend(kLilyTiny, random_model().weights(), "random", options,
                                [&](const AffineView& view) { released += view.bytes(); });
  ASSERT_TRUE(made);
  EXPECT_GT(total, 0u);
  EXPECT_EQ(last, total);
  EXPECT_EQ(released, total);
}

}  // namespace
}  // namespace lily
