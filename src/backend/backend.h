// The seam. A backend owns weights and sequence state on its device and runs whole steps; it may fuse inside as it
// likes. Contract (all backends):
//  - The tokens of a sequence depend on its own tokens alone, bit for bit: not on how they were cut into steps, on what
//    else was in the step, or on whether a prefix came from a snapshot.
//  - step() is called from one thread at a time. Everything else that a backend hands out may be destroyed on any
//  thread.
//  - A step that fails with OutOfMemory has run nothing: memory is taken before work starts, that of its marks too, and
//    all its sequences are as before. A step that fails otherwise leaves the sequences in it unusable, others
//    untouched.
//  - A snapshot from a mark equals the one that snapshot() would have given, had a step ended there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/shape.h"

namespace lily {

class Checkpoint;

// One conversation's state on the device: KV pages, GDN state, conv tail.
class Sequence {
 public:
  virtual ~Sequence() = default;
  virtual std::int64_t length() const = 0;    // tokens run so far
  virtual std::int64_t capacity() const = 0;  // reserved maximum; step() past it is a programmer error
};

// An immutable copy of a sequence at a token boundary. Recurrent state is copied, full KV pages are shared.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual std::int64_t length() const = 0;
  // Bytes that dropping this snapshot would free if nothing else shared its pages (recurrent state + own pages).
  virtual std::size_t bytes() const = 0;
  // Names each page inside bytes() that other snapshots may share, with its size, so that a cache counts it once.
  // An identity is the page's own as long as some snapshot holds it. By default nothing is shared.
  virtual void visit_pages(const std::function<void(const void* identity, std::size_t bytes)>& /*visit*/) const {}
};

enum class Want : std::uint8_t {
  Nothing,     // prefill, not the last chunk
  Greedy,      // id of the highest logit of the last token (ties to the lower id, unused rows masked)
  LastLogits,  // [V] of the last token into `logits`
  AllLogits,   // [n_tokens, V] into `logits`
};

// Asks for a snapshot while an item's tokens run.
struct SnapshotMark {
  std::int64_t at = 0;                         // tokens of the item that it has seen, in [1, tokens.size()]
  std::shared_ptr<const Snapshot> snapshot{};  // out, if the step succeeds
};

struct StepItem {
  Sequence* sequence = nullptr;
  std::span<const TokenId> tokens;  // at least one; prefill chunks and decode tokens may mix in a step
  Want want = Want::Nothing;
  std::span<float> logits{};        // caller's memory for LastLogits/AllLogits; masked rows hold -infinity
  TokenId greedy = -1;              // out, for Want::Greedy; -1 if any logit was NaN
  std::span<SnapshotMark> marks{};  // caller's; `at` ascends, none twice
};

struct BackendOptions {
  int n_threads = 0;                  // in every step; 0: all cores that this process may use, where a step gains by it
  TokenId n_tokens = 0;               // addressable ids of the tokenizer; logits of rows beyond are masked
  std::int64_t max_batch_tokens = 0;  // most tokens in one step; 0: the backend's choice
  std::string activations;            // cpu: "" (default), "int16" or "int8"
  std::function<void(std::size_t done_bytes, std::size_t total_bytes)> progress;  // while loading, any thread
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;    // "reference", "cpu", "cuda", "metal"
  virtual std::string description() const = 0;  // one line: instruction set, threads
  virtual const Shape& shape() const = 0;
  virtual std::int64_t max_batch_tokens() const = 0;  // most tokens that one step takes
  virtual std::size_t weight_bytes() const = 0;       // packed, resident

  // Bytes a sequence of that capacity will take when full (for admission).
  virtual std::size_t sequence_bytes(std::int64_t capacity) const = 0;

  virtual Result<std::unique_ptr<Sequence>> create(std::int64_t capacity) = 0;
  virtual Result<std::unique_ptr<Sequence>> restore(const Snapshot& snapshot, std::int64_t capacity) = 0;
  virtual Result<std::shared_ptr<const Snapshot>> snapshot(const Sequence& sequence) = 0;

  // Serialised form of a snapshot, for caches on disk. Layout is the backend's own and versioned.
  virtual Result<std::vector<std::byte>> serialize(const Snapshot& snapshot) const = 0;
  virtual Result<std::shared_ptr<const Snapshot>> deserialize(std::span<const std::byte> bytes) = 0;

  virtual Result<void> step(std::span<StepItem> items) = 0;
};

Result<std::unique_ptr<Backend>> make_reference_backend(const Checkpoint& checkpoint, const BackendOptions& options);
Result<std::unique_ptr<Backend>> make_cpu_backend(const Checkpoint& checkpoint, const BackendOptions& options);

}  // namespace lily
