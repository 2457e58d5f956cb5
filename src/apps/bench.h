// The suites of `lily bench`.
#pragma once

#include "apps/commands.h"
#include "base/error.h"

namespace lily::apps {

// Ten-turn chat and twelve-step tool loop, thinking off and on, under each kind of prefix cache.
Result<void> run_cache_suite(const BenchOptions& options);

}  // namespace lily::apps
