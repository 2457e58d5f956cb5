// Runs one request and waits for it: for command line, bench and tests.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"

namespace lily {

struct GenerateResult {
  std::vector<TokenId> tokens;
  Finish finish;  // reason is never Error: that is the Result's error
};

// `on_token` runs on the engine's thread; returning false cancels the request. Errors: those of submit() and those
// that end a request. Must not be called from a sink.
Result<GenerateResult> generate_blocking(Engine& engine, Request request,
                                         const std::function<bool(TokenId)>& on_token = {});

}  // namespace lily
