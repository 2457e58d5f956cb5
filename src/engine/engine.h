// The boundary for server, command line and bench: submit token ids, receive token ids. Knows nothing of text, HTTP
// or JSON. One thread owns the backend; submit(), cancel() and stats() may be called from any thread.
// The tokens of a request depend on its own prompt alone: not on the cache, the other requests or the chunking.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

namespace lily {

struct EngineOptions {
  std::int64_t max_seq = 32768;                    // most tokens (prompt + answer) of a sequence
  int max_active = 8;                              // sequences worked on together, prefill and decode
  int max_queued = 64;                             // requests waiting; one more is refused with Unavailable
  int cache_states = 0;                            // > 0: Lily's cache, that many whole states, LRU; 0: the trie below
  std::size_t cache_bytes = std::size_t{2} << 30;  // budget of the trie; 0 with cache_states 0: no cache
  std::size_t kv_bytes = 0;       // budget for running sequences; 0: no limit. Too large a request is OutOfMemory
  std::string cache_directory{};  // persistence of the trie; empty: none
  std::size_t cache_directory_bytes = std::size_t{16} << 30;  // most bytes of files in it
  std::string fingerprint{};                                  // of the checkpoint, keys the persistent cache

  std::int64_t prefill_chunk = 0;         // most prompt tokens in a step; 0: all that the backend takes
  double busy_step_seconds = 0.25;        // while answers stream, prompt work is cut to about this much a step
  std::int64_t snapshot_interval = 4096;  // tokens between the trie's snapshots inside a long prompt
};

struct Request {
  std::vector<TokenId> prompt{};           // at least one token
  std::vector<std::int64_t> boundaries{};  // ascending prompt lengths that later prompts are likely to share
  std::int64_t max_tokens = -1;            // -1: up to max_seq; 0: only run the prompt and cache it
  std::vector<TokenId> stop_ids{};         // end the answer, are not part of it
  std::string cache_key{};                 // hint which cached states to keep; never replaces the token check
  bool use_cache = true;                   // false: neither reads nor feeds the prefix cache
};

enum class FinishReason : std::uint8_t { Stop, Length, Cancelled, Error };

std::string_view finish_name(FinishReason reason);  // "stop", "length", "cancelled", "error"

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;      // prompt tokens really taken from the cache
  std::int64_t completion_tokens = 0;  // without the stop token
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
};

struct Finish {
  FinishReason reason = FinishReason::Stop;
  Usage usage{};
  std::optional<Error> error{};  // for FinishReason::Error
  // Index of the first prompt token that differs from the nearest cached conversation; -1 if none differs. A client
  // that changes its early tokens every turn shows here.
  std::int64_t diverged_at = -1;
};

// Receives what happens to a request, on the engine's thread, in order; calls must return at once and not throw.
// on_finish is the last call and comes exactly once for every submitted request.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_prefill(std::int64_t /*done*/, std::int64_t /*total*/) {}
  virtual void on_token(TokenId id) = 0;
  virtual void on_finish(const Finish& finish) = 0;
};

using RequestId = std::uint64_t;

struct EngineStats {
  int active = 0, queued = 0;
  std::uint64_t requests = 0, finished = 0, cancelled = 0, failed = 0;  // accepted; ended well, by cancel, by error
  std::uint64_t refused = 0;                                            // by submit()
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::uint64_t steps = 0;            // backend steps
  double step_seconds = 0;            // spent in them
  std::size_t kv_reserved_bytes = 0;  // of running sequences
  std::uint64_t cache_hits = 0, cache_misses = 0, cache_evictions = 0;
  std::size_t cache_entries = 0, cache_used_bytes = 0;
  std::size_t cache_disk_entries = 0, cache_disk_bytes = 0;
  std::uint64_t nan_logits = 0;
  bool healthy = true;  // false after a backend fault
};

class Engine {
 public:
  // Errors: InvalidArgument (options that contradict each other or the backend), Io (cache_directory unusable).
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Backend> backend, EngineOptions options);
  virtual ~Engine() = default;  // cancels what runs, joins the thread

  // Errors: InvalidArgument (prompt empty or with an impossible id, prompt + 1 > max_seq, max_tokens < -1),
  // OutOfMemory (kv_bytes), Unavailable (queue full, stopping, backend failed).
  virtual Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) = 0;
  // Stops within one step; unknown or finished ids are ignored. The sink still gets on_finish.
  virtual void cancel(RequestId id) = 0;
  // Stops admission; waits for all accepted requests until the deadline, then cancels the rest. Saves the cache if
  // it persists. Not from a sink.
  virtual void shutdown(double drain_seconds) = 0;
  virtual EngineStats stats() const = 0;
  virtual const EngineOptions& options() const = 0;
  virtual const Backend& backend() const = 0;
};

}  // namespace lily
