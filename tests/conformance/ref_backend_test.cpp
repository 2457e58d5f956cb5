// The reference backend keeps the contract of the seam: independence of chunking, of company in the step and of
// snapshots, bit for bit; masks, NaN, serialised states.
#include "backend/ref/ref_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/backend_support.h"
#include "support/random_weights.h"

namespace lily {
namespace {

using testing::kSmallShape;
using testing::random_tokens;
using testing::RandomWeights;

class RefBackendTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> make(TokenId n_tokens = 0, std::string_view key = "key") {
    return *ref::make_backend(
        kSmallShape, weights_.weights(), key,
        {.n_threads = 1, .n_tokens = n_tokens, .max_batch_tokens = 0, .activations = {}, .progress = {}});
  }

  // Logits of every token, run in chunks of `chunk`.
  static std::vector<float> all_logits(Backend& backend, std::span<const TokenId> tokens, std::size_t chunk) {
    auto sequence = *backend.create(static_cast<std::int64_t>(tokens.size()));
    return testing::run(backend, *sequence, tokens, chunk);
  }

  RandomWeights weights_{kSmallShape};
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_F(RefBackendTest, LogitsAreFiniteAndVary) {
  auto backend = make();
  const auto logits = all_logits(*backend, random_tokens(40, kSmallShape.vocab, 3), 40);
  for (float value : logits) ASSERT_TRUE(std::isfinite(value));
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  EXPECT_GT(*high - *low, 1.0f);
}

// N06: lengths around the conv window and around 64, chunks of every awkward size.
TEST_F(RefBackendTest, N06ChunkingChangesNothing) {
  auto backend = make();
  for (std::size_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 60, 63, 64, 65, 70}) {
    const auto tokens = random_tokens(n, kSmallShape.vocab, n);
    const auto whole = all_logits(*backend, tokens, n);
    for (std::size_t chunk : {1, 2, 3, 63, 64, 65})
      EXPECT_TRUE(same_bits(all_logits(*backend, tokens, chunk), whole)) << n << " tokens in chunks of " << chunk;
  }
}

// N04: alone, or in a step with six others, at any row.
TEST_F(RefBackendTest, N04CompanyChangesNothing) {
  auto backend = make();
  const auto tokens = random_tokens(12, kSmallShape.vocab, 5);
  const auto alone = all_logits(*backend, tokens, 12);
  const std::size_t vocab = static_cast<std::size_t>(kSmallShape.vocab);
  for (std::size_t place = 0; place < 7; ++place) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<std::vector<TokenId>> inputs;
    std::vector<std::vector<float>> logits;
    std::vector<StepItem> items;
    for (std::size_t i = 0; i < 7; ++i) {
      sequences.push_back(*backend->create(32));
      inputs.push_back(i == place ? tokens : random_tokens(3 + i, kSmallShape.vocab, 100 + i));
      logits.emplace_back(inputs.back().size() * vocab);
    }
    for (std::size_t i = 0; i < 7; ++i)
      items.push_back(
          {.sequence = sequences[i].get(), .tokens = inputs[i], .want = Want::AllLogits, .logits = logits[i]});
    ASSERT_TRUE(backend->step(items));
    EXPECT_TRUE(same_bits(logits[place], alone));
  }
}

TEST_F(RefBackendTest, SnapshotContinuesAsTheSequenceWould) {
  auto backend = make();
  const auto tokens = random_tokens(50, kSmallShape.vocab, 7);
  const auto whole = all_logits(*backend, tokens, 50);
  auto sequence = *backend->create(50);
  testing::run(*backend, *sequence, std::span(tokens).first(20), 20);
  auto snapshot = *backend->snapshot(*sequence);
  EXPECT_EQ(snapshot->length(), 20);
  EXPECT_EQ(snapshot->bytes(), backend->sequence_bytes(20));

  testing::run(*backend, *sequence, std::span(tokens).subspan(20), 7);  // goes on; the snapshot must not notice
  auto restored = *backend->restore(*snapshot, 64);
  EXPECT_EQ(restored->length(), 20);
  EXPECT_EQ(restored->capacity(), 64);
  const auto rest = testing::run(*backend, *restored, std::span(tokens).subspan(20), 3);
  EXPECT_TRUE(same_bits(rest, std::span(whole).last(rest.size())));
}

TEST_F(RefBackendTest, LastLogitsAndGreedyAgreeWithAllLogits) {
  auto backend = make();
  const auto tokens = random_tokens(33, kSmallShape.vocab, 8);
  const auto all = all_logits(*backend, tokens, 33);
  const auto last = std::span(all).last(static_cast<std::size_t>(kSmallShape.vocab));
  auto a = *backend->create(33), b = *backend->create(33);
  std::vector<float> logits(last.size());
  std::vector<StepItem> items{{.sequence = a.get(), .tokens = tokens, .want = Want::LastLogits, .logits = logits},
                              {.sequence = b.get(), .tokens = tokens, .want = Want::Greedy, .logits = {}}};
  ASSERT_TRUE(backend->step(items));
  EXPECT_TRUE(same_bits(logits, last));
  EXPECT_EQ(items[1].greedy, std::max_element(last.begin(), last.end()) - last.begin());
}

TEST_F(RefBackendTest, RowsBeyondTheTokenizerAreNeverChosen) {
  auto open = make(), masked = make(100);
  const auto tokens = random_tokens(64, 100, 9);
  const auto all = all_logits(*open, tokens, 64), cut = all_logits(*masked, tokens, 64);
  const std::size_t vocab = static_cast<std::size_t>(kSmallShape.vocab);
  bool mattered = false;
  for (std::size_t t = 0; t < 64; ++t) {
    const auto row = std::span(cut).subspan(t * vocab, vocab);
    EXPECT_TRUE(same_bits(row.first(100), std::span(all).subspan(t * vocab, 100)));
    for (float value : row.subspan(100)) EXPECT_EQ(value, -std::numeric_limits<float>::infinity());
    const auto full = std::span(all).subspan(t * vocab, vocab);
    mattered |= std::max_element(full.begin(), full.end()) - full.begin() >= 100;
  }
  EXPECT_TRUE(mattered) << "the input never wanted a masked row";
}

// N07: a NaN anywhere must not look like token 0.
TEST_F(RefBackendTest, N07NanGivesNoToken) {
  const std::uint16_t nan = 0x7fc0;
  std::memcpy(const_cast<std::byte*>(weights_.weights().layers[1].post_norm.data), &nan, 2);
  auto backend = make();
  auto sequence = *backend->create(4);
  const std::vector<TokenId> tokens{1, 2, 3};
  StepItem item{.sequence = sequence.get(), .tokens = tokens, .want = Want::Greedy, .logits = {}};
  ASSERT_TRUE(backend->step({&item, 1}));
  EXPECT_EQ(item.greedy, -1);
}

TEST_F(RefBackendTest, SavedStateContinues) {
  auto backend = make();
  const auto tokens = random_tokens(30, kSmallShape.vocab, 11);
  const auto whole = all_logits(*backend, tokens, 30);
  auto sequence = *backend->create(30);
  testing::run(*backend, *sequence, std::span(tokens).first(17), 17);
  const auto bytes = *backend->serialize(**backend->snapshot(*sequence));

  auto other = make();
  auto snapshot = other->deserialize(bytes);
  ASSERT_TRUE(snapshot);
  auto restored = *other->restore(**snapshot, 30);
  const auto rest = testing::run(*other, *restored, std::span(tokens).subspan(17), 13);
  EXPECT_TRUE(same_bits(rest, std::span(whole).last(rest.size())));
}

TEST_F(RefBackendTest, DamagedSavedStateIsRefused) {
  auto backend = make();
  auto sequence = *backend->create(8);
  testing::run(*backend, *sequence, random_tokens(8, kSmallShape.vocab, 12), 8);
  const auto good = *backend->serialize(**backend->snapshot(*sequence));
  const auto code = [&](std::span<const std::byte> bytes) {
    const auto snapshot = backend->deserialize(bytes);
    return snapshot ? ErrorCode::Internal : snapshot.error().code;
  };
  for (std::size_t n : {std::size_t{0}, std::size_t{7}, std::size_t{39}, std::size_t{40}, good.size() - 1})
    EXPECT_EQ(code(std::span(good).first(n)), ErrorCode::Corrupt) << n;
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_EQ(code(longer), ErrorCode::Corrupt);
  for (std::size_t at :
       {std::size_t{0}, std::size_t{24}, std::size_t{31}, std::size_t{32}, std::size_t{40}, good.size() - 1}) {
    auto bad = good;
    bad[at] ^= std::byte{0x80};
    EXPECT_EQ(code(bad), ErrorCode::Corrupt) << at;
  }
  auto version = good;
  version[8] = std::byte{2};
  EXPECT_EQ(code(version), ErrorCode::Unsupported);
  EXPECT_EQ(make(0, "other weights")->deserialize(good).error().code, ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace lily
