// The boundary for server, command line and bench: submit token ids, receive token ids. Knows nothing of text, HTTP
// or JSON. One thread owns the backend; submit(), cancel() and stats() may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

namespace lily {

struct EngineOptions {
  std::int64_t max_seq = 32768;   // most tokens (prompt + answer) of a sequence
  int max_active = 8;             // sequences decoded together
  int max_queued = 64;            // requests waiting; one more is refused with Unavailable
  int cache_states = 0;           // > 0: Lily's cache, that many whole states, LRU; 0: the trie below
  std::size_t cache_bytes = std::size_t{2} << 30;  // budget of the trie; 0 with cache_states 0: no cache
  std::size_t kv_bytes = 0;       // budget for running sequences; 0: no limit. Too large a request is OutOfMemory
  std::string cache_directory;    // persistence; empty: none
  std::string fingerprint;        // of the checkpoint, keys the persistent cache
};

struct Request {
  std::vector<TokenId> prompt;             // at least one token
  std::vector<std::int64_t> boundaries;    // ascending prompt lengths that later prompts are likely to share
  std::int64_t max_tokens = -1;            // -1: up to max_seq; 0: only run the prompt
  std::vector<TokenId> stop_ids;           // end the answer, are not part of it
  std::string cache_key;                   // hint which cached state to prefer; never replaces the token check
  bool use_cache = true;                   // false: neither reads nor feeds the prefix cache
};

enum class FinishReason : std::uint8_t { Stop, Length, Cancelled, Error };

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;      // prompt tokens really taken from the cache
  std::int64_t completion_tokens = 0;  // without the stop token
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
};

struct Finish {
  FinishReason reason = FinishReason::Stop;
  Usage usage;
  std::optional<Error> error;  // for FinishReason::Error
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
  std::uint64_t requests = 0, finished = 0, cancelled = 0, failed = 0;
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::size_t cache_entries = 0, cache_used_bytes = 0;
  std::uint64_t nan_logits = 0;
  bool healthy = true;  // false after a backend fault
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Backend> backend, EngineOptions options);
  virtual ~Engine() = default;  // cancels what runs, joins the thread

  // Errors: InvalidArgument (prompt empty, or prompt + 1 > max_seq), OutOfMemory (kv_bytes), Unavailable (queue full, stopping).
  virtual Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) = 0;
  // Stops within one step; unknown or finished ids are ignored. The sink still gets on_finish.
  virtual void cancel(RequestId id) = 0;
  // Stops admission; with drain, waits for what runs until the deadline, then cancels.
  virtual void shutdown(double drain_seconds) = 0;
  virtual EngineStats stats() const = 0;
  virtual const EngineOptions& options() const = 0;
  virtual const Backend& backend() const = 0;
};

}  // namespace lily
