// The row of `lily bench` that a client sees: the first token through HTTP.
#pragma once

#include "apps/bench_speed.h"

namespace lily::apps {

// Seconds from connecting to the whole answer of a chat request that asks for one token: the server on this machine,
// JSON, template, tokenizer and engine included. The prompt is close to `tokens` long; the row says how long.
Result<PrefillRow> measure_http_first_token(Engine& engine, const BenchModel& model, const SpeedPlan& plan,
                                            std::int64_t tokens);

}  // namespace lily::apps
