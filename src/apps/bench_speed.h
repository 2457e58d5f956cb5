// Rows of `lily bench --suite speed`: prefill and decode of a bare backend, and the first token through the engine.
#pragma once

#include <functional>
#include <memory>

#include "apps/bench_backend.h"
#include "apps/bench_record.h"
#include "engine/engine.h"

namespace lily::apps {

struct PrefillRow {
  std::int64_t tokens = 0;
  Spread seconds;
};

struct DecodeRow {
  std::int64_t context = 0;  // tokens before the first timed step
  int batch = 1;
  int steps = 0;                     // in one timed run
  Spread seconds;                    // of one run
  double read_bytes_per_second = 0;  // what the same threads read from memory before or after the row, the more of both
};

struct SpeedPlan {
  int repeats = 5;
  int decode_steps = 16;
  TokenId n_tokens = 0;          // ids to draw from
  std::function<void()> on_run;  // after every run, timed or not
};

// Each row has one untimed run first. Errors: those of create() and step().
Result<PrefillRow> measure_prefill(Backend& backend, const SpeedPlan& plan, std::int64_t tokens);
Result<DecodeRow> measure_decode(Backend& backend, const SpeedPlan& plan, std::int64_t context, int batch);

// Seconds from submitting a prompt to its first token. The engine should have no cache.
Result<PrefillRow> measure_first_token(Engine& engine, const SpeedPlan& plan, std::int64_t tokens);

}  // namespace lily::apps
