// What the engine's thread does: keeps the running requests, builds each step of the backend from them, hands out
// the tokens, feeds the prefix cache. Everything here is called from that thread.
//
// A step takes one token of every request that decodes and, within what the batch has room for, prompt chunks of
// those that prefill, first come in turn. While answers stream, prompt work a step is bounded (ChunkPacer). Snapshots
// of a prompt are taken in passing (marks), up to a number a step; a chunk ends where the next one would be too many.
//
// States of a request, with the functions that move it:
//   Queued  --admit()-->            Prefill   a sequence exists, from the cache or empty
//   Prefill --after_prefill()-->    Prefill   a chunk was run, perhaps snapshots taken
//   Prefill --after_prefill()-->    Decode    the whole prompt was run and the first token sampled
//   Decode  --take_token()-->       Decode    a token went to the sink
//   any     --finish()-->           Done      stop, limit, cancel or error; on_finish has been called
// Invariants:
//   1. position == sequence->length(): the tokens [0, position) and no others are in the sequence's state.
//   2. Prefill: position < prompt length. Decode: position == tokens.size() - 1: the last token is not run yet.
//   3. tokens.size() - prompt length is the number of on_token calls, and at most `limit`.
//   4. A snapshot of n tokens goes into the cache only under the tokens [0, n) of the sequence it was taken of, and
//      n <= position: after the step that ran them.
//   5. kv_reserved is the sum of kv_bytes over requests that are neither Queued nor Done.
//   6. on_finish is called once, after which nothing of the request is left here.
//   7. Between steps no mark holds a snapshot.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cache.h"
#include "engine/chunk_pacer.h"
#include "engine/engine.h"
#include "engine/snapshot_plan.h"

namespace lily {

using EngineClock = std::chrono::steady_clock;

// A request that submit() has accepted.
struct Submission {
  RequestId id = 0;
  Request request;
  std::shared_ptr<EventSink> sink;
  std::int64_t limit = 0;    // most answer tokens, from max_tokens and max_seq
  std::size_t kv_bytes = 0;  // reserved while it runs
  EngineClock::time_point submitted;
  std::shared_ptr<std::atomic<bool>> cancelled;
};

// The scheduler's figures as other threads may see them.
class StatsBoard {
 public:
  void publish(const EngineStats& stats) {
    const std::lock_guard lock(mutex_);
    stats_ = stats;
  }
  EngineStats read() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  mutable std::mutex mutex_;
  EngineStats stats_;
};

class Scheduler {
 public:
  // `cache` may be null. The board outlives the scheduler.
  Scheduler(Backend& backend, const EngineOptions& options, std::unique_ptr<PrefixCache> cache, StatsBoard& board);
  ~Scheduler();

  bool idle() const { return active_.empty(); }
  // Whether a slot and the memory budget have room for it now.
  bool has_room_for(const Submission& submission) const;

  void admit(Submission submission);
  // Ends a request that was never admitted.
  void refuse(const Submission& submission, FinishReason reason, std::optional<Error> error);
  // One step of the backend over the running requests. An error is a fault of the backend: call fail_all().
  Result<void> step();
  void fail_all(const Error& error);
  void save_cache();

 private:
  enum class Phase : std::uint8_t { Prefill, Decode, Done };
  struct Running;
  struct Work {
    Running* running = nullptr;
    bool ran = false;
  };

  Result<void> start(Running& running);
  bool restore(Running& running, const CacheHit& hit);
  void plan_snapshots(Running& running, const CacheHit& hit);
  void catch_up(Running& running);
  std::int64_t cacheable_length(const Running& running) const;

  void end_cancelled();
  void gather_decode();
  std::int64_t gather_prefill();
  std::int64_t place_marks(Running& running, std::int64_t n_tokens);
  void add_item(Running& running, std::int64_t n_tokens, Want want, std::span<SnapshotMark> marks = {});
  Result<void> run_items();
  void drop_marks();
  Result<void> run_one_by_one();
  void after_step();
  void after_prefill(Running& running, TokenId sampled);
  void take_token(Running& running, TokenId id);
  void save_marks(Running& running, const StepItem& item);
  void save_state(Running& running, SnapshotKind kind);
  void save_last_state(Running& running, FinishReason reason);
  void finish(Running& running, FinishReason reason, std::optional<Error> error = std::nullopt);
  void fail_with_nan(Running& running);
  void sweep();
  void publish();
  void count_cache();

  template <class Make>
  auto with_memory(Make make) -> decltype(make());

  Backend& backend_;
  const EngineOptions& options_;
  std::unique_ptr<PrefixCache> cache_;
  StatsBoard& board_;
  EngineStats stats_;
  ChunkPacer pacer_;
  std::vector<std::unique_ptr<Running>> active_;  // in order of admission, so ids ascend
  std::vector<StepItem> items_;                   // of the step being built; work_ says whose they are
  std::vector<Work> work_;
  std::size_t most_marks_;
  std::vector<SnapshotMark> marks_;  // of items_; never more than most_marks_, so that they stay where they are
  std::vector<SnapshotKind> mark_kinds_;
  RequestId last_prefilled_ = 0;  // where the turn of prefills stands
};

}  // namespace lily
