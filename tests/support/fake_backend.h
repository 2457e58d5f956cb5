// A backend whose model is a hash: the next token depends on every token so far, once through a recurrent state and
// once through paged, shared, copied-on-write "attention" pages, so that any mixture of states shows in the output.
// Memory is counted and can be limited; steps can be made to fail, to give NaN, to wait.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/check.h"

namespace lily::fake {

inline constexpr std::int64_t kPageTokens = 16;
inline constexpr std::size_t kPageBytes = 1024;
inline constexpr std::size_t kStateBytes = 8192;
inline constexpr TokenId kStopId = 0;

inline constexpr Shape kShape{.name = "fake",
                              .hidden = 64,
                              .n_layers = 4,
                              .attention_interval = 4,
                              .n_q_heads = 1,
                              .n_kv_heads = 1,
                              .head_dim = 64,
                              .rotary_dim = 64,
                              .gdn_k_heads = 1,
                              .gdn_v_heads = 1,
                              .gdn_head_dim = 64,
                              .conv_width = 4,
                              .n_experts = 8,
                              .n_active = 8,
                              .expert_dim = 64,
                              .shared_dim = 64,
                              .vocab = 1000,
                              .max_positions = 1 << 20};

inline std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
  state ^= value + 0x9e3779b97f4a7c15u + (state << 6) + (state >> 2);
  state *= 0xff51afd7ed558ccdu;
  return state ^ (state >> 33);
}

// What all copies of a sequence's memory report to, so that a test sees what is alive.
struct Memory {
  std::atomic<std::int64_t> pages{0};
  std::atomic<std::int64_t> states{0};  // of sequences and snapshots
  std::int64_t bytes() const {
    return pages * static_cast<std::int64_t>(kPageBytes) + states * static_cast<std::int64_t>(kStateBytes);
  }
};

struct Page {
  explicit Page(std::shared_ptr<Memory> owner) : memory(std::move(owner)) { ++memory->pages; }
  Page(const Page& other) : memory(other.memory), tokens(other.tokens) { ++memory->pages; }
  Page& operator=(const Page&) = delete;
  ~Page() { --memory->pages; }
  std::shared_ptr<Memory> memory;
  std::array<TokenId, kPageTokens> tokens{};
};

// As on a real device, a page may hold tokens beyond `length`: of a sequence that ran on after a mark.
struct State {
  explicit State(std::shared_ptr<Memory> owner) : memory(std::move(owner)) { ++memory->states; }
  State(const State& other)
      : memory(other.memory), recurrent(other.recurrent), length(other.length), pages(other.pages) {
    ++memory->states;
  }
  State& operator=(const State&) = delete;
  ~State() { --memory->states; }

  std::int64_t new_pages(std::int64_t n_tokens) const {
    const std::int64_t copies = length % kPageTokens != 0 && pages.back().use_count() > 1;
    return (length + n_tokens + kPageTokens - 1) / kPageTokens - std::ssize(pages) + copies;
  }
  void append(TokenId id) {
    recurrent = mix(recurrent, static_cast<std::uint64_t>(id) + 1);
    if (length % kPageTokens == 0) {
      pages.push_back(std::make_shared<Page>(memory));
    } else if (pages.back().use_count() > 1) {
      pages.back() = std::make_shared<Page>(*pages.back());
    }
    pages.back()->tokens[static_cast<std::size_t>(length % kPageTokens)] = id;
    ++length;
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> all;
    for (const auto& page : pages) all.insert(all.end(), page->tokens.begin(), page->tokens.end());
    all.resize(static_cast<std::size_t>(length));
    return all;
  }
  TokenId next() const {
    std::uint64_t attention = 1;
    for (const TokenId id : tokens()) attention = attention * 31 + static_cast<std::uint64_t>(id);
    return static_cast<TokenId>(mix(recurrent, attention) % static_cast<std::uint64_t>(kShape.vocab));
  }

  std::shared_ptr<Memory> memory;
  std::uint64_t recurrent = 7;
  std::int64_t length = 0;
  std::vector<std::shared_ptr<Page>> pages;
};

class FakeSequence : public Sequence {
 public:
  FakeSequence(State start, std::int64_t capacity) : state(std::move(start)), capacity_(capacity) {}
  std::int64_t length() const override { return state.length; }
  std::int64_t capacity() const override { return capacity_; }
  State state;

 private:
  std::int64_t capacity_;
};

class FakeSnapshot : public Snapshot {
 public:
  explicit FakeSnapshot(const State& taken) : state(taken) {}
  std::int64_t length() const override { return state.length; }
  std::size_t bytes() const override { return kStateBytes + state.pages.size() * kPageBytes; }
  void visit_pages(const std::function<void(const void*, std::size_t)>& visit) const override {
    for (const auto& page : state.pages) visit(page.get(), kPageBytes);
  }
  State state;
};

// Set before the engine starts; the hooks run on the engine's thread.
struct Options {
  std::int64_t max_batch_tokens = 512;
  // Alive at once, in sequences and snapshots. States are limited where a step has marks.
  std::int64_t max_pages = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_states = std::numeric_limits<std::int64_t>::max();
  std::function<std::optional<Error>(std::span<const StepItem>)> before_step{};
  std::function<bool(const Sequence&)> gives_nan{};  // asked after a step about each sequence that samples
  std::function<std::optional<Error>()> before_create{};
  std::function<std::optional<Error>()> before_restore{};
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(Options options = {}, std::shared_ptr<Memory> memory = std::make_shared<Memory>())
      : options_(std::move(options)), memory_(std::move(memory)) {}

  std::string_view name() const override { return "fake"; }
  std::string description() const override { return "hash model"; }
  const Shape& shape() const override { return kShape; }
  std::int64_t max_batch_tokens() const override { return options_.max_batch_tokens; }
  std::size_t weight_bytes() const override { return 0; }
  std::size_t sequence_bytes(std::int64_t capacity) const override {
    return kStateBytes + static_cast<std::size_t>((capacity + kPageTokens - 1) / kPageTokens) * kPageBytes;
  }

  Result<std::unique_ptr<Sequence>> create(std::int64_t capacity) override {
    if (options_.before_create) {
      if (auto error = options_.before_create()) return tl::unexpected<Error>(*error);
    }
    return std::make_unique<FakeSequence>(State(memory_), capacity);
  }
  Result<std::unique_ptr<Sequence>> restore(const Snapshot& snapshot, std::int64_t capacity) override {
    if (options_.before_restore) {
      if (auto error = options_.before_restore()) return tl::unexpected<Error>(*error);
    }
    LILY_CHECK(snapshot.length() <= capacity);
    return std::make_unique<FakeSequence>(static_cast<const FakeSnapshot&>(snapshot).state, capacity);
  }
  Result<std::shared_ptr<const Snapshot>> snapshot(const Sequence& sequence) override {
    return std::make_shared<const FakeSnapshot>(static_cast<const FakeSequence&>(sequence).state);
  }

  Result<std::vector<std::byte>> serialize(const Snapshot& snapshot) const override {
    const std::vector<TokenId> tokens = static_cast<const FakeSnapshot&>(snapshot).state.tokens();
    const auto bytes = std::as_bytes(std::span(tokens));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }
  Result<std::shared_ptr<const Snapshot>> deserialize(std::span<const std::byte> bytes) override {
    if (bytes.size() % sizeof(TokenId) != 0) return fail(ErrorCode::Corrupt, "odd number of bytes");
    State state(memory_);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(TokenId)) {
      TokenId id;
      std::memcpy(&id, bytes.data() + at, sizeof id);
      state.append(id);
    }
    return std::make_shared<const FakeSnapshot>(state);
  }

  Result<void> step(std::span<StepItem> items) override {
    if (options_.before_step) {
      if (auto error = options_.before_step(items)) return tl::unexpected<Error>(*error);
    }
    std::int64_t n_tokens = 0;
    std::int64_t n_pages = memory_->pages, n_marks = 0;
    for (const StepItem& item : items) {
      const auto& sequence = static_cast<const FakeSequence&>(*item.sequence);
      LILY_CHECK(!item.tokens.empty() && sequence.length() + std::ssize(item.tokens) <= sequence.capacity());
      n_tokens += std::ssize(item.tokens);
      n_pages += sequence.state.new_pages(std::ssize(item.tokens));
      n_marks += std::ssize(item.marks);
      for (const StepItem& other : items) LILY_CHECK(&other == &item || other.sequence != item.sequence);
    }
    LILY_CHECK(n_tokens <= options_.max_batch_tokens);
    if (n_pages > options_.max_pages) return fail(ErrorCode::OutOfMemory, "{} pages", n_pages);
    if (n_marks > 0 && memory_->states + n_marks > options_.max_states)
      return fail(ErrorCode::OutOfMemory, "{} marks", n_marks);
    for (StepItem& item : items) {
      auto& sequence = static_cast<FakeSequence&>(*item.sequence);
      append(sequence.state, item);
      if (item.want != Want::Greedy) continue;
      const bool nan = options_.gives_nan && options_.gives_nan(sequence);
      item.greedy = nan ? -1 : sequence.state.next();
    }
    return {};
  }

 private:
  // Snapshots at marks share the pages that the item fills, also those it goes on to write behind the mark.
  static void append(State& state, const StepItem& item) {
    std::vector<std::pair<std::int64_t, std::uint64_t>> passed;  // length and recurrent state at each mark
    auto mark = item.marks.begin();
    for (std::size_t i = 0; i < item.tokens.size(); ++i) {
      state.append(item.tokens[i]);
      if (mark == item.marks.end() || mark->at != static_cast<std::int64_t>(i) + 1) continue;
      passed.emplace_back(state.length, state.recurrent);
      ++mark;
    }
    LILY_CHECK(mark == item.marks.end());
    for (std::size_t i = 0; i < passed.size(); ++i) {
      auto snapshot = std::make_shared<FakeSnapshot>(state);
      std::tie(snapshot->state.length, snapshot->state.recurrent) = passed[i];
      snapshot->state.pages.resize(static_cast<std::size_t>((passed[i].first + kPageTokens - 1) / kPageTokens));
      item.marks[i].snapshot = std::move(snapshot);
    }
  }

  Options options_;
  std::shared_ptr<Memory> memory_;
};

// What a request must answer, computed without engine, cache, chunks or batch.
inline std::vector<TokenId> expected_answer(std::span<const TokenId> prompt, std::int64_t limit,
                                            const std::vector<TokenId>& stop_ids = {kStopId}) {
  State state(std::make_shared<Memory>());
  for (const TokenId id : prompt) state.append(id);
  std::vector<TokenId> answer;
  while (std::ssize(answer) < limit) {
    const TokenId id = state.next();
    if (std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end()) break;
    answer.push_back(id);
    state.append(id);
  }
  return answer;
}

}  // namespace lily::fake
