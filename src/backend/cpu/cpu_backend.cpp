// Options, loading, and the bookkeeping around steps.
#include "backend/cpu/cpu_backend.h"

#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/state.h"
#include "backend/cpu/step.h"
#include "base/check.h"
#include "base/cpu_features.h"

namespace lily::cpu {
namespace {

// At 512 an expert of the 35B shape meets 16 rows on average, enough for its weights to be read in passing; more would
// only make a step longer, and with it what a cancelled or waiting request has to sit through.
constexpr std::int64_t kDefaultBatchTokens = 512;

// Everything but the step itself, which is compiled for each shape.
struct Parts {
  const Kernels& kernels;
  std::unique_ptr<ThreadPool> pool;
  bool all_threads;  // as Machine
  ModelPack model;
  Workspace work;
  Precision precision;
  TokenId n_tokens;
  std::int64_t max_batch_tokens;
  std::string model_key;
};

template <const Shape& S>
class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(Parts parts)
      : parts_(std::move(parts)),
        state_(S),
        step_({parts_.kernels, *parts_.pool, parts_.all_threads, parts_.model, state_, parts_.work, parts_.precision,
               parts_.n_tokens},
              parts_.max_batch_tokens) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return fmt::format("{}, {} threads, {} activations", parts_.kernels.name, parts_.pool->size(),
                       parts_.precision == Precision::Int16 ? "int16" : "int8");
  }
  const Shape& shape() const override { return S; }
  std::int64_t max_batch_tokens() const override { return parts_.max_batch_tokens; }
  std::size_t weight_bytes() const override { return parts_.model.arena.size(); }
  std::size_t sequence_bytes(std::int64_t capacity) const override {
    const std::int64_t pages = (capacity + kPageTokens - 1) / kPageTokens;
    return state_.recurrent_bytes + static_cast<std::size_t>(pages) * state_.page_bytes;
  }

  Result<std::unique_ptr<Sequence>> create(std::int64_t capacity) override {
    LILY_CHECK(capacity >= 0);
    return within_memory("a sequence", [&]() -> Result<std::unique_ptr<Sequence>> {
      return std::make_unique<CpuSequence>(state_, capacity);
    });
  }
  Result<std::unique_ptr<Sequence>> restore(const Snapshot& snapshot, std::int64_t capacity) override {
    LILY_CHECK(snapshot.length() <= capacity);
    return within_memory("a sequence", [&]() -> Result<std::unique_ptr<Sequence>> {
      return static_cast<const CpuSnapshot&>(snapshot).restore(state_, capacity);
    });
  }
  Result<std::shared_ptr<const Snapshot>> snapshot(const Sequence& sequence) override {
    return within_memory("a snapshot", [&]() -> Result<std::shared_ptr<const Snapshot>> {
      return std::make_shared<CpuSnapshot>(static_cast<const CpuSequence&>(sequence));
    });
  }
  Result<std::vector<std::byte>> serialize(const Snapshot& snapshot) const override {
    return within_memory("a saved state", [&]() -> Result<std::vector<std::byte>> {
      return static_cast<const CpuSnapshot&>(snapshot).serialize(state_, parts_.model_key);
    });
  }
  Result<std::shared_ptr<const Snapshot>> deserialize(std::span<const std::byte> bytes) override {
    return within_memory("a saved state", [&]() -> Result<std::shared_ptr<const Snapshot>> {
      LILY_TRY(auto snapshot, CpuSnapshot::deserialize(state_, parts_.model_key, bytes));
      return snapshot;
    });
  }

  Result<void> step(std::span<StepItem> items) override {
    std::int64_t n_tokens = 0;
    for (const StepItem& item : items) {
      LILY_CHECK(item.sequence != nullptr && !item.tokens.empty());
      for (const StepItem& other : items) LILY_CHECK(&other == &item || other.sequence != item.sequence);
      std::int64_t previous = 0;
      for (const SnapshotMark& mark : item.marks) {
        LILY_CHECK(mark.at > previous && mark.at <= std::ssize(item.tokens));
        previous = mark.at;
      }
      n_tokens += std::ssize(item.tokens);
    }
    LILY_CHECK(n_tokens <= parts_.max_batch_tokens);
    if (items.empty()) return {};
    return within_memory("a step", [&]() -> Result<void> {
      std::vector<std::shared_ptr<CpuSnapshot>> taken;  // at the marks of all items
      std::vector<float*> mark_states;
      for (const StepItem& item : items) {
        auto& sequence = static_cast<CpuSequence&>(*item.sequence);
        LILY_TRY_VOID(sequence.prepare(std::ssize(item.tokens)));
        for (const SnapshotMark& mark : item.marks) {
          LILY_TRY(auto snapshot, CpuSnapshot::make_ahead(sequence, sequence.length() + mark.at));
          mark_states.push_back(snapshot->recurrent());
          taken.push_back(std::move(snapshot));
        }
      }
      LILY_TRY_VOID(step_.run(items, mark_states));
      auto next = taken.begin();
      for (const StepItem& item : items) {
        static_cast<CpuSequence*>(item.sequence)->advance(std::ssize(item.tokens));
        for (SnapshotMark& mark : item.marks) mark.snapshot = std::move(*next++);
      }
      return {};
    });
  }

 private:
  // Small allocations throw: here is where that ends.
  template <class Work>
  static auto within_memory(std::string_view what, Work work) -> decltype(work()) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {
    }
    return fail(ErrorCode::OutOfMemory, "CPU backend: not enough memory for {}", what);
  }

  Parts parts_;
  StateLayout state_;
  Step<S> step_;
};

Result<Precision> parse_precision(const std::string& name) {
  if (name.empty() || name == "int16") return Precision::Int16;
  if (name == "int8") return Precision::Int8;
  return fail(ErrorCode::InvalidArgument, "activations '{}' are not known to the CPU backend: use int16 or int8", name);
}

Result<Parts> load_parts(const Shape& shape, const TextWeights& weights, std::string_view model_key,
                         const BackendOptions& options, const std::function<void(const AffineView&)>& release) {
  LILY_TRY(const Precision precision, parse_precision(options.activations));
  const Kernels* kernels = choose_kernels();
  if (kernels == nullptr)
    return fail(ErrorCode::Unsupported,
                "LILY_CPU_ISA names an instruction set that this machine does not have (it has: generic {})",
                cpu_feature_names());
  auto pool = std::make_unique<ThreadPool>(options.n_threads);
  const std::int64_t max_batch = options.max_batch_tokens > 0 ? options.max_batch_tokens : kDefaultBatchTokens;
  LILY_TRY(Workspace work, Workspace::allocate(shape, max_batch, pool->size(), precision));
  LILY_TRY(ModelPack model, load_weights(shape, weights, *pool, {options.progress, release}));
  const TokenId n_tokens = options.n_tokens > 0 ? options.n_tokens : shape.vocab;
  LILY_CHECK(n_tokens <= shape.vocab);
  return Parts{*kernels, std::move(pool), options.n_threads > 0, std::move(model), std::move(work), precision,
               n_tokens, max_batch,       std::string(model_key)};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const Shape& shape, const TextWeights& weights,
                                              std::string_view model_key, const BackendOptions& options,
                                              const std::function<void(const AffineView&)>& release) {
  try {
    LILY_TRY(Parts parts, load_parts(shape, weights, model_key, options, release));
    if (shape.name == kQwen36_35B_A3B.name) return std::make_unique<CpuBackend<kQwen36_35B_A3B>>(std::move(parts));
    if (shape.name == kLilyTiny.name) return std::make_unique<CpuBackend<kLilyTiny>>(std::move(parts));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::OutOfMemory, "CPU backend: not enough memory to set up");
  } catch (const std::system_error& error) {
    return fail(ErrorCode::OutOfMemory, "CPU backend: cannot start its threads: {}", error.what());
  }
  return fail(ErrorCode::Unsupported, "the CPU backend is not built for the shape {}", shape.name);
}

}  // namespace lily::cpu

namespace lily {

Result<std::unique_ptr<Backend>> make_cpu_backend(const Checkpoint& checkpoint, const BackendOptions& options) {
  return cpu::make_backend(checkpoint.shape(), checkpoint.weights(), checkpoint.fingerprint(), options,
                           [&](const AffineView& view) { checkpoint.release(view); });
}

}  // namespace lily
