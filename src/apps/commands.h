// The subcommands of `lily`: plain options, filled by the command line (lily.cpp), and one function each, in the file
// of its name. A run_*() reports its own errors on standard error and returns the exit code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lily::apps {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,        // the work could not be done; the reason is on standard error
  kExitUsage = 2,         // the command line does not make sense
  kExitInterrupted = 130  // Ctrl-C
};

// Which model, on what.
struct ModelOptions {
  std::string model;            // checkpoint directory; empty: the model inside the program
  std::string device = "auto";  // "auto", "cpu" or "reference"
  int threads = 0;              // 0: every core that this process may use
  std::string activations;      // cpu: "" (its default), "int16" or "int8"
  std::int64_t max_seq = 0;     // most tokens of prompt and answer together; 0: 32768, or the model's limit if lower
};

struct CacheOptions {
  int states = 0;                            // > 0: Lily's cache of that many whole states; 0: the trie
  std::size_t bytes = std::size_t{2} << 30;  // budget of the trie; 0: no cache
  std::string directory;                     // where the trie persists; empty: nowhere
};

struct ServeOptions {
  ModelOptions model;
  CacheOptions cache;
  std::string host = "127.0.0.1";
  int port = 8080;                        // 0: any free port, printed
  std::string name;                       // id in /v1/models; empty: the checkpoint's own
  std::string api_key;                    // clients must send it; empty: none asked
  std::vector<std::string> cors_origins;  // web pages that may use the server, besides those of this machine
  int max_active = 8;                     // answers decoded together
  int max_queued = 64;                    // requests waiting; one more gets 429
  std::size_t kv_bytes = 0;               // budget of running sequences; 0: no limit
  std::size_t max_body_bytes = std::size_t{16} << 20;
  int max_connections = 1024;
  double head_seconds = 10;        // for a request's head to arrive, in all
  double body_seconds = 60;        // for its body
  double drain_seconds = 10;       // after SIGTERM, for answers that run
  bool strict = false;             // refuse every unknown request field
  std::string log_level = "info";  // "debug", "info", "warn", "error"
};

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;  // from the argument, --file or standard input; see run_generate()
  std::string file;
  std::string system;
  bool raw = false;  // the prompt is text to continue, no chat template
  bool thinking = false;
  std::int64_t max_tokens = 1024;
  bool json = false;
};

struct ChatCommandOptions {
  ModelOptions model;
  CacheOptions cache;
  std::string system;
  bool thinking = false;
  bool stats = false;
  std::int64_t max_tokens = -1;  // of one answer; -1: up to max_seq
};

struct BenchOptions {
  ModelOptions model;
  std::string suite = "speed";  // "speed" or "cache"
  std::vector<std::int64_t> prefill{256, 512, 1024};
  std::vector<std::int64_t> contexts{256, 1024};  // decode at these context lengths
  std::vector<int> batches{1};                    // decode with so many sequences in a step
  int repeats = 5;
  int decode_tokens = 16;  // timed steps of one repeat
  std::string json;        // file to write; "-": standard output instead of the table
  std::string command;     // the command line, for the record
};

struct EvalOptions {
  ModelOptions model;
  std::string text;             // file; empty: a text inside the program
  std::int64_t tokens = 2048;   // most tokens judged
  std::int64_t context = 1024;  // text is cut into windows of so many tokens
  std::string against;          // "reference", "cpu", "cpu:int16", "cpu:int8": a second backend; empty: none
  std::string reference;        // file of saved logits to compare with
  std::string save;             // file to save this run's logits to
  std::string json;             // as in BenchOptions
  std::string command;          // as in BenchOptions
};

struct InspectOptions {
  std::string directory;  // empty: the model inside the program
  bool tensors = false;   // list every tensor
  bool json = false;
};

struct VerifyOptions {
  std::string directory;
  bool quick = false;  // headers and sizes only, weights are not read
};

struct SynthOptions {
  std::string directory;           // must not exist or be empty
  std::string shape = "LilyTiny";  // a name of model/shape.h
  std::uint64_t seed = 1;
  bool vision = false;          // also vision tensors, which a reader must skip
  std::size_t shard_bytes = 0;  // 0: as the published checkpoint
  std::string tokenizer;        // a tokenizer.json to copy; empty: a made-up one
  std::string chat_template;    // a template to copy; empty: LilyTiny's
};

int run_serve(const ServeOptions& options);
int run_generate(const GenerateOptions& options);
int run_chat(const ChatCommandOptions& options);
int run_bench(const BenchOptions& options);
int run_eval(const EvalOptions& options);
int run_inspect(const InspectOptions& options);
int run_verify(const VerifyOptions& options);
int run_synth(const SynthOptions& options);

// What --version prints: version, commit, build, backends, what this CPU has.
std::string version_text();

}  // namespace lily::apps
