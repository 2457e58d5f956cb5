// A model ready to answer: checkpoint, tokenizer, template and a running engine, brought up in one place for serve,
// chat, generate and bench.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "model/checkpoint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lily::api {

struct LoadOptions {
  std::filesystem::path directory;  // a checkpoint; empty: the model linked into the binary
  std::string device = "auto";      // "auto" (the fastest that this build and machine have), "cpu" or "reference"
  int n_threads = 0;                // 0: every core that this process may use
  std::string activations;          // cpu: "" (default), "int16" or "int8"
  std::int64_t max_seq = 0;         // 0: 32768 or the checkpoint's max_position_embeddings, whichever is less
  EngineOptions engine;             // max_seq and fingerprint are filled in by load_model()
  std::function<void(std::size_t done_bytes, std::size_t total_bytes)> progress;  // while weights load, any thread
};

// Members are destroyed from the last to the first: the engine goes before the checkpoint that it may still read.
struct LoadedModel {
  std::unique_ptr<Checkpoint> checkpoint;
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  std::unique_ptr<Engine> engine;
  double load_seconds = 0;  // from the first file opened to an engine that accepts requests

  const std::string& id() const { return checkpoint->id(); }
  const std::vector<TokenId>& stop_ids() const { return checkpoint->stop_ids(); }
};

// The backend alone, for those that measure it: device, threads, activations and progress of the options.
Result<std::unique_ptr<Backend>> make_backend(const LoadOptions& options, const Checkpoint& checkpoint,
                                              TokenId n_tokens);

// Errors: those of Checkpoint::open, Tokenizer::load, ChatTemplate::load, the backend and the engine; InvalidArgument
// for an unknown device and for max_seq beyond the checkpoint's max_position_embeddings.
Result<LoadedModel> load_model(const LoadOptions& options);

}  // namespace lily::api
