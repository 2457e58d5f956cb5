// lily serve: listens at once, loads the model behind, answers until a signal says stop.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "api/loaded_model.h"
#include "api/service.h"
#include "apps/commands.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/quote.h"
#include "base/version.h"
#include "net/access.h"
#include "net/http_server.h"

namespace lily::apps {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

// SIGINT and SIGTERM as something to wait for. They are blocked before any thread starts, so that all inherit it.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);
  }
  void wait() {
    int which = 0;
    sigwait(&set_, &which);
  }
  bool pending() {
    sigset_t pending_set;
    sigpending(&pending_set);
    if (sigismember(&pending_set, SIGINT) == 0 && sigismember(&pending_set, SIGTERM) == 0) return false;
    wait();
    return true;
  }
  static void raise() { kill(getpid(), SIGTERM); }

 private:
  sigset_t set_;
};

log::Level log_level(const std::string& name) {
  if (name == "debug") return log::Level::Debug;
  if (name == "warn") return log::Level::Warn;
  return name == "error" ? log::Level::Error : log::Level::Info;
}

api::LoadOptions load_options(const ServeOptions& options) {
  api::LoadOptions load;
  load.directory = options.model.model;
  load.device = options.model.device;
  load.n_threads = options.model.threads;
  load.activations = options.model.activations;
  load.max_seq = options.model.max_seq;
  load.engine.max_active = options.max_active;
  load.engine.max_queued = options.max_queued;
  load.engine.kv_bytes = options.kv_bytes;
  load.engine.cache_states = options.cache.states;
  load.engine.cache_bytes = options.cache.bytes;
  load.engine.cache_directory = options.cache.directory;
  return load;
}

net::Limits limits(const ServeOptions& options) {
  net::Limits limits;
  limits.body_bytes = options.max_body_bytes;
  limits.connections = options.max_connections;
  limits.head_timeout = milliseconds(options.head_seconds);
  limits.body_timeout = milliseconds(options.body_seconds);
  return limits;
}

std::string url_of(const net::HttpServer& server) {
  const bool v6 = server.address().find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", server.address(), v6 ? "]" : "", server.port());
}

void print_listening(const ServeOptions& options, const net::HttpServer& server) {
  const std::string what = options.model.model.empty() ? "the tiny model inside this program" : options.model.model;
  fmt::print("lily {} listens on {} and loads {}\n", version(), url_of(server), what);
  std::fflush(stdout);
  if (!server.loopback() && options.api_key.empty())
    log::warn("anyone who can reach {} may use it; --api-key asks for a key", url_of(server));
}

void print_ready(const ServeOptions& options, const net::HttpServer& server, const api::LoadedModel& model,
                 const std::string& id) {
  const std::size_t bytes = model.checkpoint->text_bytes();
  const std::string url = url_of(server);
  fmt::print("\n  model    {} ({}), {} tokens of context\n", id, model.checkpoint->shape().name,
             with_commas(static_cast<std::uint64_t>(model.engine->options().max_seq)));
  fmt::print("  runs on  {}: {}\n", model.engine->backend().name(), model.engine->backend().description());
  fmt::print("  loaded   {} in {:.2f} s ({}/s)\n", human_bytes(bytes), model.load_seconds,
             human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / model.load_seconds)));
  fmt::print("  base     {}/v1\n", url);
  fmt::print(
      "  try      curl {}/v1/chat/completions{} -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n",
      url, options.api_key.empty() ? "" : " -H \"Authorization: Bearer $LILY_API_KEY\"");
  fmt::print("  stop     Ctrl-C\n\n");
  std::fflush(stdout);
}

// The model, brought up by a thread of its own while the server already answers /health.
class Loader {
 public:
  // `model`: where it goes; outlives the service, which may still be reading requests when the loader has gone.
  Loader(const ServeOptions& options, const net::HttpServer& server, api::Service& service,
         std::unique_ptr<api::LoadedModel>& model)
      : options_(options), server_(server), service_(service), model_(model), thread_([this] { load(); }) {}
  ~Loader() {
    if (thread_.joinable()) thread_.join();
  }

  bool done() const { return done_.load(); }
  const std::string& problem() const { return problem_; }  // once done(); empty: all is well
  // Cancels what the engine still runs; every request then has its answer.
  void stop_engine() {
    if (model_) model_->engine->shutdown(0);
  }

 private:
  void load() {
    api::LoadOptions load = load_options(options_);
    std::optional<Progress> bar;
    std::mutex bar_mutex;
    load.progress = [&](std::size_t done, std::size_t total) {
      service_.set_loading_progress(total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(total));
      const std::lock_guard lock(bar_mutex);
      if (!bar) bar.emplace("loading", total);
      bar->set(done);
    };
    auto model = api::load_model(load);
    bar.reset();
    if (model) {
      model_ = std::make_unique<api::LoadedModel>(std::move(*model));
      serve();
    } else {
      problem_ = model.error().message;
    }
    done_ = true;
    if (!problem_.empty()) StopSignals::raise();
  }

  void serve() {
    for (const std::string& note : model_->checkpoint->notes()) log::info("{}", note);
    api::ServedModel served;
    served.id = options_.name.empty() ? model_->id() : options_.name;
    served.tokenizer = &model_->tokenizer;
    served.chat_template = &model_->chat_template;
    served.engine = model_->engine.get();
    served.stop_ids = model_->stop_ids();
    served.fingerprint = fmt::format("lily-{}-{}-{}", version(), model_->engine->backend().name(),
                                     model_->checkpoint->fingerprint().substr(0, 12));
    served.created = std::time(nullptr);
    const std::string id = served.id;
    service_.serve(std::move(served));
    print_ready(options_, server_, *model_, id);
  }

  const ServeOptions& options_;
  const net::HttpServer& server_;
  api::Service& service_;
  std::unique_ptr<api::LoadedModel>& model_;
  std::string problem_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// Lets running answers end; what is left after the grace time, or at a second signal, is told that the server stops.
void drain(const ServeOptions& options, StopSignals& signals, net::HttpServer& server, Loader& loader) {
  constexpr std::chrono::milliseconds kPoll{50};
  constexpr std::chrono::milliseconds kLastWords{2000};
  const auto deadline = Clock::now() + milliseconds(options.drain_seconds);
  bool done = server.drain(kPoll);
  while (!done && Clock::now() < deadline && !signals.pending()) done = server.drain(kPoll);
  loader.stop_engine();
  if (!done) server.drain(kLastWords);
  server.stop();
}

}  // namespace

int run_serve(const ServeOptions& options) {
  log::set_level(log_level(options.log_level));
  if (!options.api_key.empty()) {
    if (const std::string problem = net::key_problem(options.api_key); !problem.empty()) {
      fmt::print(stderr, "lily: --api-key: {}\n", problem);
      return kExitUsage;
    }
  }
  StopSignals signals;
  auto server = net::HttpServer::bind(options.host, options.port, limits(options));
  if (!server) {
    fmt::print(stderr, "lily: {}\n", server.error().message);
    return kExitFailed;
  }
  std::unique_ptr<api::LoadedModel> model;
  net::AccessPolicy policy;
  policy.loopback = (*server)->loopback();
  if (!options.api_key.empty()) policy.api_keys.push_back(options.api_key);
  policy.cors_origins = options.cors_origins;
  api::Service service({.access = std::move(policy), .strict = options.strict});
  (*server)->start(service);
  print_listening(options, **server);
  Loader loader(options, **server, service, model);

  signals.wait();
  if (!loader.done()) {  // loading cannot be interrupted, and nothing is lost
    (*server)->stop();
    std::fflush(stdout);
    std::_Exit(kExitOk);
  }
  if (!loader.problem().empty()) {
    (*server)->stop();
    fmt::print(stderr, "lily: {}\n", loader.problem());
    return kExitFailed;
  }
  log::info("stopping; a second signal cuts what still runs");
  service.set_draining();
  drain(options, signals, **server, loader);
  return kExitOk;
}

}  // namespace lily::apps
