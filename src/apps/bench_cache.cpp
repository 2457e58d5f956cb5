// `lily bench --suite cache`: what the prefix cache saves on an ordinary chat, on three that take turns, and on an
// agent's tool loop. Every answer of the model goes back as history, as a client would send it; users, tools and their
// results are scripted.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "apps/ask.h"
#include "apps/bench.h"
#include "apps/bench_record.h"
#include "apps/bench_script.h"
#include "base/progress.h"

namespace lily::apps {
namespace {

constexpr std::int64_t kAnswerTokens = 24;

struct CacheKind {
  const char* name;
  CacheOptions options;
};

const std::vector<CacheKind>& cache_kinds() {
  static const std::vector<CacheKind> kinds{{"none", {.states = 0, .bytes = 0}},
                                            {"states-2", {.states = 2, .bytes = 0}},
                                            {"trie", {.states = 0, .bytes = std::size_t{2} << 30}}};
  return kinds;
}

struct Step {
  std::int64_t prompt = 0, cached = 0;
  std::int64_t boundary = 0;  // the last one that an earlier request of the conversation shares
  double first_token_seconds = 0;
};

struct Run {
  std::string scenario, cache;
  bool thinking = false;
  std::vector<Step> steps;
};

// What earlier requests of a conversation left behind: their tokens, and where a state could have been kept.
class Past {
 public:
  // The longest prefix of `prompt` that ends on a boundary of an earlier request. At least one token has to be run.
  std::int64_t last_shared_boundary(const std::vector<TokenId>& prompt) const {
    std::int64_t best = 0;
    for (const Entry& entry : entries_) {
      const auto most = std::min(entry.tokens.size(), prompt.size() - 1);
      const auto differ =
          std::mismatch(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(most), entry.tokens.begin());
      const std::int64_t common = differ.first - prompt.begin();
      for (const std::int64_t boundary : entry.boundaries) {
        if (boundary <= common) best = std::max(best, boundary);
      }
    }
    return best;
  }

  void add(std::vector<TokenId> prompt, std::vector<std::int64_t> boundaries, const std::vector<TokenId>& answer) {
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    boundaries.push_back(static_cast<std::int64_t>(prompt.size()));
    entries_.push_back({std::move(prompt), std::move(boundaries)});
  }

 private:
  struct Entry {
    std::vector<TokenId> tokens;
    std::vector<std::int64_t> boundaries;
  };
  std::vector<Entry> entries_;
};

class Conversation {
 public:
  Conversation(const api::LoadedModel& model, json::Array tools, bool thinking, std::string system)
      : model_(model), tools_(std::move(tools)), thinking_(thinking) {
    messages_.push_back({.role = Role::System, .content = std::move(system)});
  }

  void say(Role role, std::string text) { messages_.push_back({.role = role, .content = std::move(text)}); }

  // One request; its answer becomes history. Where the model made no call although one is due, `call` stands in.
  Result<Step> step(const std::optional<ToolCall>& call) {
    LILY_TRY(Request request, make_request(model_, messages_, tools_, thinking_, kAnswerTokens));
    Step step{.prompt = static_cast<std::int64_t>(request.prompt.size()),
              .boundary = past_.last_shared_boundary(request.prompt)};
    std::vector<TokenId> prompt = request.prompt;
    std::vector<std::int64_t> boundaries = request.boundaries;
    LILY_TRY(const Reply reply, ask(model_, std::move(request), {.thinking = thinking_, .tools = tools_}));
    step.cached = reply.finish.usage.cached_tokens;
    step.first_token_seconds = reply.first_token_seconds;
    past_.add(std::move(prompt), std::move(boundaries), reply.tokens);
    remember(reply, call);
    return step;
  }

 private:
  void remember(const Reply& reply, const std::optional<ToolCall>& call) {
    ChatMessage message{.role = Role::Assistant, .content = reply.content};
    if (!reply.reasoning.empty()) message.reasoning = reply.reasoning;
    if (call) {
      const auto own = reply.tool_calls.empty() ? std::nullopt : parsed(reply.tool_calls.front());
      message.tool_calls.push_back(own.value_or(*call));
    }
    messages_.push_back(std::move(message));
  }

  static std::optional<ToolCall> parsed(const ParsedToolCall& call) {
    auto arguments = json::parse(call.arguments);
    if (!arguments || !arguments->is_object()) return std::nullopt;
    return ToolCall{.name = call.name, .arguments = arguments->as_object()};
  }

  const api::LoadedModel& model_;
  json::Array tools_;
  bool thinking_;
  std::vector<ChatMessage> messages_;
  Past past_;
};

// The system messages differ from their first word on, so that no conversation finds what another left in the cache.
std::string system_text(const Run& run, std::string_view visitor) {
  return fmt::format("{} {}, thinking {}. {}", visitor, run.scenario, run.thinking ? "on" : "off", script::kSystem);
}

Result<void> run_chat_turns(const api::LoadedModel& model, Run& run, Progress& progress) {
  Conversation conversation(model, {}, run.thinking, system_text(run, "One"));
  for (const std::string_view turn : script::kChatTurns) {
    conversation.say(Role::User, std::string(turn));
    LILY_TRY(const Step step, conversation.step(std::nullopt));
    run.steps.push_back(step);
    progress.add(1);
  }
  return {};
}

// Three people ask the same questions, each in a conversation of their own, taking turns: more than two states hold.
Result<void> run_interleaved(const api::LoadedModel& model, Run& run, Progress& progress) {
  std::vector<Conversation> conversations;
  for (const char* visitor : {"First", "Second", "Third"}) {
    conversations.emplace_back(model, json::Array{}, run.thinking, system_text(run, visitor));
  }
  for (const std::string_view turn : script::kChatTurns) {
    for (Conversation& conversation : conversations) {
      conversation.say(Role::User, std::string(turn));
      LILY_TRY(const Step step, conversation.step(std::nullopt));
      run.steps.push_back(step);
      progress.add(1);
    }
  }
  return {};
}

Result<void> run_tool_loop(const api::LoadedModel& model, Run& run, Progress& progress) {
  Conversation conversation(model, script::tools(), run.thinking, system_text(run, "One"));
  conversation.say(Role::User, std::string(script::kTask));
  for (const script::ToolStep& scripted : script::tool_steps()) {
    LILY_TRY(const Step step, conversation.step(scripted.call));
    run.steps.push_back(step);
    conversation.say(Role::Tool, scripted.result);
    progress.add(1);
  }
  return {};
}

Result<std::vector<Run>> run_all(const BenchOptions& options, json::Object& record) {
  using Scenario = Result<void> (*)(const api::LoadedModel&, Run&, Progress&);
  constexpr std::pair<const char*, Scenario> scenarios[] = {
      {"chat", run_chat_turns}, {"three chats", run_interleaved}, {"tools", run_tool_loop}};
  std::vector<Run> runs;
  for (const CacheKind& kind : cache_kinds()) {
    LILY_TRY(const api::LoadedModel model, load(options.model, kind.options));
    record["model"] = json::Object{{"id", model.id()},
                                   {"shape", model.checkpoint->shape().name},
                                   {"fingerprint", model.checkpoint->fingerprint()}};
    record["backend"] =
        json::Object{{"name", model.engine->backend().name()}, {"description", model.engine->backend().description()}};
    Progress progress(kind.name, 2 * (4 * script::kChatTurns.size() + script::tool_steps().size()),
                      Progress::Unit::Items);
    for (const bool thinking : {false, true}) {
      for (const auto& [name, play] : scenarios) {
        Run run{.scenario = name, .cache = kind.name, .thinking = thinking};
        LILY_TRY_VOID(play(model, run, progress));
        runs.push_back(std::move(run));
      }
    }
  }
  return runs;
}

// Tokens before the last shared boundary that were run again all the same: 0 for a cache that misses nothing.
std::int64_t missed_tokens(const Run& run) {
  std::int64_t missed = 0;
  for (const Step& step : run.steps) missed += std::max<std::int64_t>(0, step.boundary - step.cached);
  return missed;
}

json::Object run_json(const Run& run) {
  json::Array steps;
  std::int64_t prompt = 0, cached = 0;
  std::vector<double> seconds;
  for (const Step& step : run.steps) {
    prompt += step.prompt;
    cached += step.cached;
    seconds.push_back(step.first_token_seconds);
    steps.push_back(json::Object{{"prompt_tokens", step.prompt},
                                 {"cached_tokens", step.cached},
                                 {"last_shared_boundary", step.boundary},
                                 {"first_token_seconds", step.first_token_seconds}});
  }
  return {{"scenario", run.scenario},
          {"thinking", run.thinking},
          {"cache", run.cache},
          {"prompt_tokens", prompt},
          {"cached_tokens", cached},
          {"hit_rate", static_cast<double>(cached) / static_cast<double>(prompt)},
          {"missed_tokens", missed_tokens(run)},
          {"first_token_seconds", to_json(spread_of(seconds))},
          {"steps", std::move(steps)}};
}

void print_runs(const json::Object& record) {
  const auto& backend = record.at("backend").as_object();
  fmt::print("{} on {} ({})\n{}\n\n", record.at("model").as_object().at("id").as_string().c_str(),
             backend.at("name").as_string().c_str(), backend.at("description").as_string().c_str(),
             machine_line(record.at("machine").as_object()));
  fmt::print("{:<13}{:<10}{:<11}{:>8}{:>9}{:>9}{:>9}{:>22}\n", "", "thinking", "cache", "prompt", "cached", "hit rate",
             "missed", "first token (median)");
  for (const auto& value : record.at("runs").as_array()) {
    const auto& run = value.as_object();
    fmt::print("{:<13}{:<10}{:<11}{:>8}{:>9}{:>7.1f} %{:>9}{:>20.3f} s\n", run.at("scenario").as_string().c_str(),
               run.at("thinking").as_bool() ? "on" : "off", run.at("cache").as_string().c_str(),
               run.at("prompt_tokens").to_number<std::int64_t>(), run.at("cached_tokens").to_number<std::int64_t>(),
               100 * run.at("hit_rate").to_number<double>(), run.at("missed_tokens").to_number<std::int64_t>(),
               run.at("first_token_seconds").as_object().at("median").to_number<double>());
  }
  fmt::print("\nmissed: tokens before the last boundary shared with an earlier request that were run again\n");
}

}  // namespace

Result<void> run_cache_suite(const BenchOptions& options) {
  json::Object record = record_head("lily-bench-cache/1", options.command);
  LILY_TRY(const std::vector<Run> runs, run_all(options, record));
  json::Array rows;
  for (const Run& run : runs) rows.push_back(run_json(run));
  record["runs"] = std::move(rows);
  if (options.json != "-") print_runs(record);
  return write_record(record, options.json);
}

}  // namespace lily::apps
