// lily synth: random weights in the real layout.
#include "model/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>

#include "apps/commands.h"
#include "base/progress.h"
#include "base/quote.h"

namespace lily::apps {

int run_synth(const SynthOptions& options) {
  SynthSpec spec;
  const auto shape = std::ranges::find(kShapes, options.shape, &Shape::name);
  if (shape == kShapes.end()) {
    fmt::print(stderr, "lily: no shape is called {}\n", quote(options.shape));
    return kExitUsage;
  }
  spec.shape = *shape;
  spec.seed = options.seed;
  spec.vision = options.vision;
  if (options.shard_bytes > 0) spec.shard_bytes = options.shard_bytes;
  spec.tokenizer = options.tokenizer;
  spec.chat_template = options.chat_template;
  std::optional<Progress> progress;
  spec.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!progress) progress.emplace("writing weights", total);
    progress->set(done);
  };
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of write(), like a full disk
  const auto start = std::chrono::steady_clock::now();
  const auto result = write_synthetic_checkpoint(options.directory, spec);
  progress.reset();
  if (!result) {
    fmt::print(stderr, "lily: {}\n", result.error().message);
    return result.error().code == ErrorCode::InvalidArgument ? kExitUsage : kExitFailed;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: {} with random weights, {} tensors in {} file{}, {} in {:.1f} s\n", options.directory,
             spec.shape->name, result->n_tensors, result->n_shards, result->n_shards == 1 ? "" : "s",
             human_bytes(result->weight_bytes), seconds);
  return kExitOk;
}

}  // namespace lily::apps
