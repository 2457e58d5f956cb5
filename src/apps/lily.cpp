// The program: reads the command line into the options of commands.h and runs one subcommand. The only file that
// includes CLI11. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>

#include "apps/commands.h"

namespace lily::apps {
namespace {

using Command = std::function<int()>;

constexpr const char* kMainHelp =
    "lily runs Qwen3.6-35B-A3B from an MLX 4-bit checkpoint, and a tiny model of the same architecture that is part "
    "of\n"
    "this program and is used whenever no --model is given.";

constexpr const char* kMainFooter =
    "Start here:\n"
    "  lily chat                                talk to the tiny model\n"
    "  lily serve --model ~/models/Qwen3.6-35B-A3B-4bit\n"
    "                                           OpenAI-style server on http://127.0.0.1:8080/v1\n"
    "  lily generate \"Name three rivers.\"       one answer, then exit\n"
    "  lily COMMAND --help                      options and examples of a command\n\n"
    "Exit codes: 0 done, 1 failed (reason on standard error), 2 wrong usage, 130 interrupted.";

CLI::App* add_command(CLI::App& app, const char* name, const char* description, const char* footer) {
  CLI::App* command = app.add_subcommand(name, description);
  command->footer(footer);
  return command;
}

CLI::Option* add_size(CLI::App* command, const char* name, std::size_t& value, const char* description) {
  return command->add_option(name, value, description)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 50))  // a negative number arrives as a huge one
      ->option_text("SIZE");
}

void add_model(CLI::App* command, ModelOptions& options) {
  const char* group = "Model";
  command->add_option("-m,--model", options.model, "checkpoint directory (MLX layout); without it the tiny model")
      ->envname("LILY_MODEL")
      ->option_text("DIR")
      ->group(group);
  command->add_option("--device", options.device, "auto, cpu, or reference (slow, readable, the judge of the others)")
      ->check(CLI::IsMember({"auto", "cpu", "reference"}))
      ->option_text("NAME")
      ->group(group);
  command
      ->add_option("-t,--threads", options.threads,
                   "threads of the cpu backend (default: every core, where a step gains by it)")
      ->check(CLI::Range(0, 4096))
      ->option_text("N")
      ->group(group);
  command
      ->add_option("--activations", options.activations,
                   "cpu: how activations are quantised for products, int16 (exact) or int8 (fast)")
      ->check(CLI::IsMember({"int16", "int8"}))
      ->option_text("NAME")
      ->group(group);
  command->add_option("--max-seq", options.max_seq, "most tokens of prompt and answer together (default: 32768)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{262144}))
      ->option_text("N")
      ->group(group);
}

void add_cache(CLI::App* command, CacheOptions& options) {
  const char* group = "Prefix cache";
  command->add_option("--cache-states", options.states, "keep N whole states, LRU, instead of the trie")
      ->check(CLI::Range(0, 1024))
      ->option_text("N")
      ->group(group);
  add_size(command, "--cache-size", options.bytes, "budget of the trie, 0 for no cache (default: 2G)")->group(group);
  command->add_option("--cache-dir", options.directory, "directory where cached prefixes survive a restart")
      ->option_text("DIR")
      ->group(group);
}

Command add_serve(CLI::App& app, ServeOptions& options) {
  CLI::App* c = add_command(
      app, "serve", "OpenAI-style HTTP server",
      "Examples:\n"
      "  lily serve\n"
      "  lily serve -m ~/models/Qwen3.6-35B-A3B-4bit --port 8000 --max-seq 128K\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"model\":\"lily\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"temperature\":0}'\n\n"
      "SIGTERM and Ctrl-C stop admission, let running answers end for --drain seconds, then exit with 0.");
  add_model(c, options.model);
  add_cache(c, options.cache);
  c->add_option("--host", options.host, "address to listen on (default: 127.0.0.1)")->option_text("ADDR");
  c->add_option("-p,--port", options.port, "port, 0 for any free one (default: 8080)")
      ->check(CLI::Range(0, 65535))
      ->option_text("N");
  c->add_option("--name", options.name, "model id that clients see")->option_text("ID");
  const auto not_empty = [](const std::string& key) { return std::string(key.empty() ? "must not be empty" : ""); };
  c->add_option("--api-key", options.api_key, "ask clients for this key")
      ->envname("LILY_API_KEY")
      ->check(CLI::Validator(not_empty, "", "not empty"))
      ->option_text("KEY");
  c->add_option("--cors-origin", options.cors_origins,
                "let web pages of this origin use the server (pages of this machine may)")
      ->option_text("ORIGIN");
  c->add_option("--max-active", options.max_active, "answers decoded together (default: 8)")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  c->add_option("--max-queued", options.max_queued, "requests that may wait; one more gets 429 (default: 64)")
      ->check(CLI::Range(0, 1 << 20))
      ->option_text("N");
  add_size(c, "--kv-size", options.kv_bytes, "budget for the states of running answers (default: no limit)");
  add_size(c, "--max-body", options.max_body_bytes, "largest request body, up to 1G (default: 16M)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30));
  c->add_option("--max-connections", options.max_connections, "open connections (default: 1024)")
      ->check(CLI::Range(1, 1 << 20))
      ->option_text("N");
  c->add_option("--head-timeout", options.head_seconds, "seconds for a request's head to arrive (default: 10)")
      ->check(CLI::Range(0.01, 86400.0))
      ->option_text("S");
  c->add_option("--body-timeout", options.body_seconds, "seconds for a request's body to arrive (default: 60)")
      ->check(CLI::Range(0.01, 86400.0))
      ->option_text("S");
  c->add_option("--drain", options.drain_seconds, "seconds for running answers at shutdown (default: 10)")
      ->check(CLI::Range(0.0, 86400.0))
      ->option_text("S");
  c->add_flag("--strict", options.strict, "refuse every unknown request field");
  c->add_option("--log-level", options.log_level, "debug, info, warn or error (default: info)")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->option_text("NAME");
  return [&options] { return run_serve(options); };
}

Command add_chat(CLI::App& app, ChatCommandOptions& options) {
  CLI::App* c = add_command(
      app, "chat", "talk to the model in the terminal",
      "Examples:\n"
      "  lily chat\n"
      "  lily chat -m ~/models/Qwen3.6-35B-A3B-4bit --think --stats\n"
      "  echo 'What is 12 + 30?' | lily chat      every line is one message\n\n"
      "Inside: /help lists the commands. Ctrl-C stops the answer, Ctrl-D on an empty line ends the program.");
  add_model(c, options.model);
  add_cache(c, options.cache);
  c->add_option("-s,--system", options.system, "system message")->option_text("TEXT");
  c->add_flag("--think", options.thinking, "let the model think before it answers");
  c->add_flag("--stats", options.stats, "a line of figures after every answer");
  c->add_option("-n,--max-tokens", options.max_tokens, "most tokens of one answer")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{262144}))
      ->option_text("N");
  return [&options] { return run_chat(options); };
}

Command add_generate(CLI::App& app, GenerateOptions& options) {
  CLI::App* c = add_command(app, "generate", "answer one prompt and exit",
                            "Examples:\n"
                            "  lily generate \"What is 12 + 30?\"\n"
                            "  lily generate --file question.txt --think\n"
                            "  git diff | lily generate --system \"Write a commit message.\" -n 200\n"
                            "  lily generate --raw \"The river\" --json | jq .usage\n\n"
                            "The answer goes to standard output as it comes; everything else to standard error.\n"
                            "--json prints one object instead: text, reasoning, finish_reason, usage, timings.");
  add_model(c, options.model);
  auto* prompt =
      c->add_option("prompt", options.prompt, "the prompt; without it and --file: standard input")->option_text("TEXT");
  c->add_option("-f,--file", options.file, "read the prompt from a file, - for standard input")
      ->option_text("FILE")
      ->excludes(prompt);
  auto* system = c->add_option("-s,--system", options.system, "system message")->option_text("TEXT");
  auto* think = c->add_flag("--think", options.thinking, "let the model think first; thoughts go to standard error");
  c->add_flag("--raw", options.raw, "continue the prompt as plain text, without the chat template")
      ->excludes(system)
      ->excludes(think);
  c->add_option("-n,--max-tokens", options.max_tokens, "most tokens of the answer (default: 1024)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{262144}))
      ->option_text("N");
  c->add_flag("--json", options.json, "print one JSON object at the end");
  return [&options] { return run_generate(options); };
}

Command add_bench(CLI::App& app, BenchOptions& options) {
  CLI::App* c = add_command(
      app, "bench", "measure speed, as numbers and as shares of the machine's limit",
      "Examples:\n"
      "  lily bench                                     the tiny model, a minute\n"
      "  lily bench -m DIR --prefill 512,4K --contexts 256,4K,32K --batches 1,4,16 --json out.json\n"
      "  lily bench -m DIR --suite cache                ten-turn chat and twelve-step tool loop:\n"
      "                                                 hit rate and time to first token, with each cache\n\n"
      "Speed: after a warm-up, the median of --repeats runs and their spread. Decode rows are also given as a share "
      "of\n"
      "the read bandwidth that this machine shows in the same run with the same threads; prefill rows in GFLOP/s.\n"
      "Keep the machine quiet: the load average is part of the output. Method and JSON schema: docs/bench.md.");
  add_model(c, options.model);
  c->add_option("--suite", options.suite, "speed (default) or cache")
      ->check(CLI::IsMember({"speed", "cache"}))
      ->option_text("NAME");
  const auto sizes = [&](const char* name, std::vector<std::int64_t>& values, const char* description) {
    c->add_option(name, values, description)
        ->delimiter(',')
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{262144}))
        ->option_text("N,N,...");
  };
  sizes("--prefill", options.prefill, "prompt lengths (default: 256,512,1K)");
  sizes("--contexts", options.contexts, "context lengths of decode (default: 256,1K)");
  c->add_option("--batches", options.batches, "sequences decoded in one step (default: 1)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->option_text("N,N,...");
  c->add_option("--repeats", options.repeats, "timed runs of a row (default: 5)")
      ->check(CLI::Range(1, 1000))
      ->option_text("N");
  c->add_option("--decode-tokens", options.decode_tokens, "steps in one decode run (default: 16)")
      ->check(CLI::Range(1, 100000))
      ->option_text("N");
  c->add_option("--json", options.json, "write JSON to a file, - for standard output instead of the table")
      ->option_text("FILE");
  return [&options] { return run_bench(options); };
}

Command add_eval(CLI::App& app, EvalOptions& options) {
  CLI::App* c = add_command(
      app, "eval", "measure fidelity: perplexity, agreement, KL",
      "Examples:\n"
      "  lily eval                                        perplexity of the tiny model on a built-in text\n"
      "  lily eval --activations int8 --against cpu:int16 what int8 activations cost\n"
      "  lily eval --device cpu --against reference --text book.txt --tokens 4K\n"
      "  lily eval --save ref.safetensors                 keep the logits, then later\n"
      "  lily eval --reference ref.safetensors            compare with them (also with a file from tools/eval/)\n\n"
      "Teacher-forced: every token of the text is predicted from the true ones before it, in windows of --context\n"
      "tokens. Top-1 agreement and KL(reference || this) are over the same positions. Method and files: docs/eval.md.");
  add_model(c, options.model);
  c->add_option("--text", options.text, "text file (default: a text inside the program)")
      ->check(CLI::ExistingFile)
      ->option_text("FILE");
  const auto count = [&](const char* name, std::int64_t& value, std::int64_t least, const char* description) {
    c->add_option(name, value, description)
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(least, std::int64_t{1} << 30))
        ->option_text("N");
  };
  count("--tokens", options.tokens, 1, "most tokens judged (default: 2048)");
  count("--context", options.context, 2, "tokens in a window (default: 1024)");
  auto* against = c->add_option("--against", options.against,
                                "second backend to compare with: reference, cpu, cpu:int16 or cpu:int8")
                      ->check(CLI::IsMember({"reference", "cpu", "cpu:int16", "cpu:int8"}))
                      ->option_text("NAME");
  c->add_option("--reference", options.reference, "file of saved logits to compare with")
      ->check(CLI::ExistingFile)
      ->option_text("FILE")
      ->excludes(against);
  c->add_option("--save", options.save, "save this run's tokens and logits (V * 4 bytes a token)")->option_text("FILE");
  c->add_option("--json", options.json, "write JSON to a file, - for standard output instead of the table")
      ->option_text("FILE");
  return [&options] { return run_eval(options); };
}

Command add_inspect(CLI::App& app, InspectOptions& options) {
  CLI::App* c = add_command(app, "inspect", "say what a checkpoint is",
                            "Examples:\n"
                            "  lily inspect                             the model inside the program\n"
                            "  lily inspect ~/models/Qwen3.6-35B-A3B-4bit --tensors | less\n\n"
                            "Reads configuration and headers only, in a moment even for 20 GB.");
  c->add_option("directory", options.directory, "checkpoint directory")->option_text("DIR");
  c->add_flag("--tensors", options.tensors, "list every tensor");
  c->add_flag("--json", options.json, "print JSON");
  return [&options] { return run_inspect(options); };
}

Command add_verify(CLI::App& app, VerifyOptions& options) {
  CLI::App* c =
      add_command(app, "verify", "check everything that can be checked about a checkpoint",
                  "Examples:\n"
                  "  lily verify ~/models/Qwen3.6-35B-A3B-4bit\n"
                  "  lily verify --quick DIR                  sizes and headers only\n\n"
                  "Exit code 0: sound. 1: the first line on standard error says what is wrong and what to do.");
  c->add_option("directory", options.directory, "checkpoint directory")->option_text("DIR")->required();
  c->add_flag("--quick", options.quick, "do not read the weights");
  return [&options] { return run_verify(options); };
}

Command add_synth(CLI::App& app, SynthOptions& options) {
  CLI::App* c = add_command(
      app, "synth", "write a checkpoint with random weights, for tests and measurements",
      "Examples:\n"
      "  lily synth /tmp/tiny --seed 7\n"
      "  lily synth /data/qwen-random --shape Qwen3.6-35B-A3B       20.4 GB, streamed to disk\n\n"
      "The bytes lie exactly as MLX writes them. What such a model says is noise; its speed is the real one.");
  c->add_option("directory", options.directory, "directory to create")->option_text("DIR")->required();
  c->add_option("--shape", options.shape, "LilyTiny (default) or Qwen3.6-35B-A3B")
      ->check(CLI::IsMember({"LilyTiny", "Qwen3.6-35B-A3B"}))
      ->option_text("NAME");
  c->add_option("--seed", options.seed, "the same seed gives the same bytes (default: 1)")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
      ->option_text("N");
  c->add_flag("--vision", options.vision, "add vision tensors, which readers must skip");
  add_size(c, "--shard-size", options.shard_bytes, "largest shard (default: as the published checkpoint)");
  c->add_option("--tokenizer", options.tokenizer, "tokenizer.json to use (default: a made-up one)")
      ->option_text("FILE");
  c->add_option("--template", options.chat_template, "chat template to use (default: LilyTiny's)")->option_text("FILE");
  return [&options] { return run_synth(options); };
}

// One line on standard error that names the fault, and where help is.
int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string where = "lily";
  for (const CLI::App* command : app.get_subcommands()) where += " " + command->get_name();
  std::fprintf(stderr, "lily: %s\nTry '%s --help'.\n", error.what(), where.c_str());
  return kExitUsage;
}

// The command line as it was typed, for the records of bench and eval.
std::string joined(int argc, char** argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) text += (i > 0 ? " " : "") + std::string(argv[i]);
  return text;
}

int main_checked(int argc, char** argv) {
  CLI::App app{kMainHelp, "lily"};
  app.footer(kMainFooter);
  app.get_formatter()->column_width(34);
  app.set_version_flag("-V,--version", version_text(), "version, build, backends and what this CPU has");
  app.require_subcommand(0, 1);

  ServeOptions serve;
  ChatCommandOptions chat;
  GenerateOptions generate;
  BenchOptions bench;
  EvalOptions eval;
  InspectOptions inspect;
  VerifyOptions verify;
  SynthOptions synth;
  const std::vector<Command> commands{add_serve(app, serve),   add_chat(app, chat),  add_generate(app, generate),
                                      add_bench(app, bench),   add_eval(app, eval),  add_inspect(app, inspect),
                                      add_verify(app, verify), add_synth(app, synth)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  bench.command = eval.command = joined(argc, argv);
  const auto all = app.get_subcommands([](CLI::App*) { return true; });  // in the order in which they were added
  for (std::size_t i = 0; i < commands.size(); ++i) {
    if (all[i]->parsed()) return commands[i]();
  }
  std::fputs(app.help().c_str(), stdout);
  return kExitOk;
}

}  // namespace
}  // namespace lily::apps

int main(int argc, char** argv) {
  try {
    return lily::apps::main_checked(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lily: %s\n", error.what());
    return lily::apps::kExitFailed;
  }
}
