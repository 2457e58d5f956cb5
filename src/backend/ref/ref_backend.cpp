// The reference backend: one thread, one sequence after the other, snapshots are copies.
#include "backend/ref/ref_backend.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/ref/model.h"
#include "backend/ref/state.h"
#include "base/check.h"
#include "ops/logits.h"

namespace lily::ref {
namespace {

constexpr std::int64_t kDefaultBatchTokens = 512;
constexpr std::size_t kBlockTokens = 32;  // tokens that share one pass over the weights; bounds the working memory

class RefSequence final : public Sequence {
 public:
  RefSequence(const Shape& shape, std::int64_t capacity) : state(shape, capacity), capacity_(capacity) {}
  std::int64_t length() const override { return state.length; }
  std::int64_t capacity() const override { return capacity_; }

  State state;

 private:
  std::int64_t capacity_;
};

class RefSnapshot final : public Snapshot {
 public:
  explicit RefSnapshot(State taken) : state(std::move(taken)) {}
  std::int64_t length() const override { return state.length; }
  std::size_t bytes() const override { return state.bytes(); }

  State state;
};

// Runs `work` and turns a failed allocation into an error.
template <class Work>
auto within_memory(std::string_view what, Work work, ErrorCode code = ErrorCode::OutOfMemory) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // a vector of more than its max_size()
  }
  return fail(code, "reference backend: not enough memory for {}", what);
}

class RefBackend final : public Backend {
 public:
  RefBackend(const Shape& shape, const TextWeights& weights, std::string_view model_key, const BackendOptions& options)
      : model_(shape, weights, options.progress),
        model_key_(model_key),
        n_tokens_(options.n_tokens > 0 ? options.n_tokens : shape.vocab),
        max_batch_tokens_(options.max_batch_tokens > 0 ? options.max_batch_tokens : kDefaultBatchTokens) {
    LILY_CHECK(n_tokens_ <= shape.vocab);
  }

  std::string_view name() const override { return "reference"; }
  std::string description() const override { return "float32, 1 thread"; }
  const Shape& shape() const override { return model_.shape(); }
  std::int64_t max_batch_tokens() const override { return max_batch_tokens_; }
  std::size_t weight_bytes() const override { return model_.weight_bytes(); }
  std::size_t sequence_bytes(std::int64_t capacity) const override { return state_bytes(shape(), capacity); }

  Result<std::unique_ptr<Sequence>> create(std::int64_t capacity) override {
    LILY_CHECK(capacity >= 0);
    return within_memory("a sequence", [&]() -> Result<std::unique_ptr<Sequence>> {
      return std::make_unique<RefSequence>(shape(), capacity);
    });
  }

  Result<std::unique_ptr<Sequence>> restore(const Snapshot& snapshot, std::int64_t capacity) override {
    LILY_CHECK(snapshot.length() <= capacity);
    return within_memory("a sequence", [&]() -> Result<std::unique_ptr<Sequence>> {
      auto sequence = std::make_unique<RefSequence>(shape(), capacity);
      sequence->state.copy_from(static_cast<const RefSnapshot&>(snapshot).state);
      return sequence;
    });
  }

  Result<std::shared_ptr<const Snapshot>> snapshot(const Sequence& sequence) override {
    return within_memory("a snapshot", [&]() -> Result<std::shared_ptr<const Snapshot>> {
      return std::make_shared<RefSnapshot>(static_cast<const RefSequence&>(sequence).state);
    });
  }

  Result<std::vector<std::byte>> serialize(const Snapshot& snapshot) const override {
    return within_memory("a saved state", [&]() -> Result<std::vector<std::byte>> {
      return serialize_state(shape(), model_key_, static_cast<const RefSnapshot&>(snapshot).state);
    });
  }

  Result<std::shared_ptr<const Snapshot>> deserialize(std::span<const std::byte> bytes) override {
    return within_memory("a saved state", [&]() -> Result<std::shared_ptr<const Snapshot>> {
      LILY_TRY(State state, deserialize_state(shape(), model_key_, bytes));
      return std::make_shared<RefSnapshot>(std::move(state));
    });
  }

  Result<void> step(std::span<StepItem> items) override {
    std::int64_t n_tokens = 0;
    for (const StepItem& item : items) n_tokens += std::ssize(item.tokens);
    LILY_CHECK(n_tokens <= max_batch_tokens_);
    LILY_TRY(Snapshots taken,
             within_memory("snapshots of a step", [&]() -> Result<Snapshots> { return reserve_snapshots(items); }));
    // The cache was reserved with the sequence. Working memory is small, but taken on the way: without it the step has
    // run in part, which is not what OutOfMemory promises.
    return within_memory(
        "the middle of a step",
        [&]() -> Result<void> {
          auto next = taken.begin();
          for (StepItem& item : items) {
            run(item, std::span(next, item.marks.size()));
            for (SnapshotMark& mark : item.marks) mark.snapshot = std::move(*next++);
          }
          return {};
        },
        ErrorCode::Internal);
  }

 private:
  using Snapshots = std::vector<std::shared_ptr<RefSnapshot>>;  // at the marks, item by item

  // Each has the memory for what will be copied into it.
  Snapshots reserve_snapshots(std::span<const StepItem> items) const {
    Snapshots reserved;
    for (const StepItem& item : items)
      for (const SnapshotMark& mark : item.marks)
        reserved.push_back(std::make_shared<RefSnapshot>(State(shape(), item.sequence->length() + mark.at)));
    return reserved;
  }

  // `taken`: of the item's marks.
  void run(StepItem& item, std::span<const std::shared_ptr<RefSnapshot>> taken) const {
    auto& sequence = static_cast<RefSequence&>(*item.sequence);
    const std::size_t n = item.tokens.size();
    const std::size_t width = static_cast<std::size_t>(shape().hidden), vocab = static_cast<std::size_t>(shape().vocab);
    LILY_CHECK(n > 0 && sequence.length() + std::ssize(item.tokens) <= sequence.capacity());
    for (TokenId token : item.tokens) LILY_CHECK(token >= 0 && token < shape().vocab);

    std::vector<float> hidden(std::min(n, kBlockTokens) * width);  // [T, D]
    std::size_t in_block = 0, mark = 0;
    for (std::size_t begin = 0; begin < n; begin += in_block) {
      const bool marked = mark < taken.size();
      const std::size_t stop = marked ? static_cast<std::size_t>(item.marks[mark].at) : n;
      LILY_CHECK(stop > begin && stop <= n);
      in_block = std::min(kBlockTokens, stop - begin);
      const auto block = std::span(hidden).first(in_block * width);
      model_.forward(item.tokens.subspan(begin, in_block), sequence.state, block);
      if (item.want == Want::AllLogits) masked_logits(block, item.logits.subspan(begin * vocab, in_block * vocab));
      if (marked && begin + in_block == stop) taken[mark++]->state.copy_from(sequence.state);
    }
    const auto last = std::span(hidden).subspan((in_block - 1) * width, width);
    if (item.want == Want::LastLogits) masked_logits(last, item.logits);
    if (item.want == Want::Greedy) {
      std::vector<float> logits(vocab);
      masked_logits(last, logits);
      item.greedy = ops::greedy_token(logits);
    }
  }

  // logits [T, V] of hidden [T, D]
  void masked_logits(std::span<const float> hidden, std::span<float> logits) const {
    const std::size_t vocab = static_cast<std::size_t>(shape().vocab);
    LILY_CHECK(logits.size() == hidden.size() / static_cast<std::size_t>(shape().hidden) * vocab);
    model_.logits(hidden, logits);
    for (std::size_t i = 0; i < logits.size(); i += vocab) ops::mask_unused_rows(logits.subspan(i, vocab), n_tokens_);
  }

  Model model_;
  std::string model_key_;
  TokenId n_tokens_;
  std::int64_t max_batch_tokens_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const Shape& shape, const TextWeights& weights,
                                              std::string_view model_key, const BackendOptions& options) {
  return within_memory("the weights", [&]() -> Result<std::unique_ptr<Backend>> {
    return std::make_unique<RefBackend>(shape, weights, model_key, options);
  });
}

}  // namespace lily::ref

namespace lily {

Result<std::unique_ptr<Backend>> make_reference_backend(const Checkpoint& checkpoint, const BackendOptions& options) {
  return ref::make_backend(checkpoint.shape(), checkpoint.weights(), checkpoint.fingerprint(), options);
}

}  // namespace lily
