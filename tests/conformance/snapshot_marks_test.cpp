// A snapshot from a mark inside a step is, to the bit, the one of a sequence that was stepped exactly to that position,
// and a step with marks computes what it computes without. On the reference and on the instruction sets of the CPU; on
// the slow generic one, which stops at marks in the same code, only where there is no other.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/ref/ref_backend.h"
#include "support/backend_support.h"
#include "support/random_weights.h"

namespace lily {
namespace {

using testing::create;
using testing::expect_same;
using testing::Logits;
using testing::run;
using Tokens = std::vector<TokenId>;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kCapacity = 200;

std::unique_ptr<Backend> make_reference() {
  static const testing::RandomWeights weights(testing::kSmallShape, 3);
  return *ref::make_backend(weights.shape(), weights.weights(), "random", {});
}

std::unique_ptr<Backend> make_cpu(std::string_view isa) {
  static const testing::RandomWeights weights(kLilyTiny, 3);
  const testing::IsaOverride chosen(std::string(isa).c_str());
  BackendOptions options;
  options.n_threads = 2;
  return *cpu::make_backend(weights.shape(), weights.weights(), "random", options);
}

std::vector<std::string> backends() {
  std::vector<std::string> names{"reference"};
  const auto tables = cpu::runnable_kernels();
  for (const cpu::Kernels* table : tables) {
    if (tables.size() == 1 || std::string_view(table->name) != "generic") names.emplace_back(table->name);
  }
  return names;
}

class SnapshotMarks : public ::testing::TestWithParam<std::string> {
 protected:
  SnapshotMarks() : backend_(GetParam() == "reference" ? make_reference() : make_cpu(GetParam())) {}

  Tokens random_tokens(std::size_t n, unsigned seed) const {
    return testing::random_tokens(n, backend_->shape().vocab, seed);
  }

  static std::vector<SnapshotMark> marks_at(std::initializer_list<std::int64_t> positions) {
    std::vector<SnapshotMark> marks;
    for (const std::int64_t at : positions) marks.push_back({.at = at});
    return marks;
  }

  void step(std::span<StepItem> items) {
    const auto done = backend_->step(items);
    ASSERT_TRUE(done) << done.error().message;
  }

  Bytes serialized(const Snapshot& snapshot) { return *backend_->serialize(snapshot); }

  // Of a sequence that has run these tokens, with the step ending there.
  Bytes stepped_to(std::span<const TokenId> tokens) {
    const auto sequence = create(*backend_, kCapacity);
    StepItem item{.sequence = sequence.get(), .tokens = tokens};
    step({&item, 1});
    return serialized(**backend_->snapshot(*sequence));
  }

  std::vector<Bytes> serialized(std::span<const SnapshotMark> marks) {
    std::vector<Bytes> all;
    for (const SnapshotMark& mark : marks) all.push_back(serialized(*mark.snapshot));
    return all;
  }

  // Each mark of an item that ran tokens [first, ...) of `tokens`.
  void expect_as_stepped(std::span<const SnapshotMark> marks, std::size_t first, std::span<const TokenId> tokens) {
    for (const SnapshotMark& mark : marks) {
      ASSERT_NE(mark.snapshot, nullptr);
      const std::size_t length = first + static_cast<std::size_t>(mark.at);
      ASSERT_EQ(mark.snapshot->length(), static_cast<std::int64_t>(length));
      EXPECT_TRUE(serialized(*mark.snapshot) == stepped_to(tokens.first(length))) << "at " << length;
    }
  }

  std::unique_ptr<Backend> backend_;
};
INSTANTIATE_TEST_SUITE_P(, SnapshotMarks, ::testing::ValuesIn(backends()),
                         [](const auto& backend) { return backend.param; });

TEST_P(SnapshotMarks, EqualTheSnapshotOfASequenceThatStoppedThere) {
  const Tokens tokens = random_tokens(140, 1);
  const auto vocab = static_cast<std::size_t>(backend_->shape().vocab);
  const Logits want = run(*backend_, tokens, 140);
  auto marks = marks_at({1, 2, 3, 5, 63, 64, 65, 100, 127, 128, 129, 139, 140});
  auto sequence = create(*backend_, kCapacity);
  Logits got(want.size());
  StepItem item{.sequence = sequence.get(), .tokens = tokens, .want = Want::AllLogits, .logits = got, .marks = marks};
  step({&item, 1});
  expect_same(got, want, "logits of the step itself");
  expect_as_stepped(marks, 0, tokens);
  const std::vector<Bytes> before = serialized(marks);

  // The sequence goes on another way before any of them is continued: neither may see the other.
  run(*backend_, *sequence, random_tokens(20, 2), 20);
  for (const SnapshotMark& mark : marks) {
    const auto at = static_cast<std::size_t>(mark.at);
    const auto continued = *backend_->restore(*mark.snapshot, kCapacity);
    expect_same(run(*backend_, *continued, std::span(tokens).subspan(at), 33), std::span(want).subspan(at * vocab),
                fmt::format("continued from {}", at));
  }
  EXPECT_TRUE(serialized(marks) == before);
}

TEST_P(SnapshotMarks, ContinueWithTokensOtherThanTheirPageWasFilledWith) {
  const Tokens tokens = random_tokens(60, 3), others = random_tokens(40, 4);
  Tokens joined(tokens.begin(), tokens.begin() + 21);
  joined.insert(joined.end(), others.begin(), others.end());
  const Logits want = run(*backend_, joined, joined.size());

  auto marks = marks_at({21});
  auto sequence = create(*backend_, kCapacity);
  StepItem item{.sequence = sequence.get(), .tokens = tokens, .marks = marks};
  step({&item, 1});
  const auto continued = *backend_->restore(*marks[0].snapshot, kCapacity);
  sequence.reset();
  marks.clear();  // its page now has one owner and is written in place
  const std::size_t vocab = want.size() / joined.size();
  expect_same(run(*backend_, *continued, others, 7), std::span(want).subspan(21 * vocab), "continued");
  EXPECT_TRUE(serialized(**backend_->snapshot(*continued)) == stepped_to(joined));
}

TEST_P(SnapshotMarks, WorkAfterARestoreAndStepAfterStep) {
  const Tokens tokens = random_tokens(150, 5);
  const std::span all(tokens);
  auto sequence = create(*backend_, kCapacity);
  auto first = marks_at({37, 50});
  StepItem item{.sequence = sequence.get(), .tokens = all.first(50), .marks = first};
  step({&item, 1});
  expect_as_stepped(first, 0, tokens);

  const auto restored = *backend_->restore(*first[0].snapshot, kCapacity);
  auto second = marks_at({1, 26, 27, 28, 63});
  item = {.sequence = restored.get(), .tokens = all.subspan(37, 63), .marks = second};
  step({&item, 1});
  auto third = marks_at({1, 28, 29, 50});
  item = {.sequence = restored.get(), .tokens = all.subspan(100), .marks = third};
  step({&item, 1});
  expect_as_stepped(second, 37, tokens);
  expect_as_stepped(third, 100, tokens);
}

TEST_P(SnapshotMarks, OfSeveralItemsInOneStep) {
  const Tokens a = random_tokens(70, 6), b = random_tokens(9, 7), c = random_tokens(66, 8);
  const auto one = create(*backend_, kCapacity), two = create(*backend_, kCapacity), three = create(*backend_, 66);
  run(*backend_, *two, std::span(b).first(8), 8);
  auto marks_a = marks_at({30, 70}), marks_b = marks_at({1}), marks_c = marks_at({64, 65});
  std::vector<StepItem> items{
      {.sequence = one.get(), .tokens = a, .marks = marks_a},
      {.sequence = two.get(), .tokens = std::span(b).last(1), .want = Want::Greedy, .marks = marks_b},
      {.sequence = three.get(), .tokens = c, .marks = marks_c}};
  step(items);
  EXPECT_GE(items[1].greedy, 0);
  expect_as_stepped(marks_a, 0, a);
  expect_as_stepped(marks_b, 8, b);
  expect_as_stepped(marks_c, 0, c);
}

TEST_P(SnapshotMarks, SurviveTheirSerializedForm) {
  const Tokens tokens = random_tokens(80, 9);
  auto marks = marks_at({40});
  const auto sequence = create(*backend_, kCapacity);
  StepItem item{.sequence = sequence.get(), .tokens = tokens, .marks = marks};
  step({&item, 1});
  const Bytes bytes = serialized(*marks[0].snapshot);
  const auto loaded = backend_->deserialize(bytes);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE(serialized(**loaded) == bytes);
  const auto from_disk = *backend_->restore(**loaded, kCapacity);
  const auto from_memory = *backend_->restore(*marks[0].snapshot, kCapacity);
  const auto rest = std::span(tokens).subspan(40);
  expect_same(run(*backend_, *from_disk, rest, 40), run(*backend_, *from_memory, rest, 40), "loaded");
}

}  // namespace
}  // namespace lily
