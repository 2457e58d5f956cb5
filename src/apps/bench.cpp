// `lily bench`: runs a suite, prints a table for people or JSON for programs. The method stands in docs/bench.md.
#include "apps/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/ask.h"
#include "apps/bench_backend.h"
#include "apps/bench_costs.h"
#include "apps/bench_http.h"
#include "apps/bench_record.h"
#include "apps/bench_speed.h"
#include "backend/cpu/bandwidth.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/quote.h"

namespace lily::apps {
namespace {

constexpr std::int64_t kRoomForTemplate = 256;  // around the message of the HTTP row

struct SpeedResult {
  double load_seconds = 0;
  std::vector<double> bandwidths;  // bytes a second that the same threads read, around each decode row
  std::vector<PrefillRow> prefill;
  std::vector<DecodeRow> decode;
  std::optional<PrefillRow> first_token, http_first_token;
};

// Rates: the fastest run has the fewest seconds.
Spread per_second(double amount, const Spread& seconds) {
  return {.median = amount / seconds.median, .min = amount / seconds.max, .max = amount / seconds.min};
}

double total_runs(const BenchOptions& options) {
  const double rows =
      static_cast<double>(options.prefill.size() + options.contexts.size() * options.batches.size()) + 2;
  return rows * (options.repeats + 1);
}

Result<void> check_sizes(const BenchOptions& options, const Shape& shape) {
  for (const std::int64_t n : options.prefill) {
    if (n > shape.max_positions) {
      return fail(ErrorCode::InvalidArgument, "--prefill {}: {} goes up to {} tokens", n, shape.name,
                  shape.max_positions);
    }
  }
  for (const std::int64_t n : options.contexts) {
    if (n + 1 + options.decode_tokens > shape.max_positions) {
      return fail(ErrorCode::InvalidArgument, "--contexts {} and {} steps more: {} goes up to {} tokens", n,
                  options.decode_tokens + 1, shape.name, shape.max_positions);
    }
  }
  return {};
}

// A row that does not fit into memory is left out with a warning; every other error ends the run.
template <class Row>
Result<void> add_row(std::vector<Row>& rows, Result<Row> row, const std::string& what) {
  if (row) {
    rows.push_back(*std::move(row));
    return {};
  }
  if (row.error().code != ErrorCode::OutOfMemory) return tl::unexpected<Error>(std::move(row).error());
  std::fprintf(stderr, "lily: %s left out: %s\n", what.c_str(), row.error().message.c_str());
  return {};
}

Result<SpeedResult> measure(const BenchOptions& options, const BenchModel& model, std::unique_ptr<Backend> backend) {
  Progress progress("measuring", static_cast<std::uint64_t>(total_runs(options)), Progress::Unit::Items);
  SpeedPlan plan{.repeats = options.repeats, .decode_steps = options.decode_tokens, .n_tokens = model.tokenizer.size()};
  plan.on_run = [&] { progress.add(1); };
  SpeedResult result;
  const auto measure_bandwidth = [&]() -> Result<void> {
    LILY_TRY(const double bandwidth, cpu::measure_read_bandwidth(options.model.threads));
    result.bandwidths.push_back(bandwidth);
    return {};
  };
  for (const std::int64_t n : options.prefill) {
    LILY_TRY_VOID(add_row(result.prefill, measure_prefill(*backend, plan, n), fmt::format("prefill of {}", n)));
  }
  LILY_TRY_VOID(measure_bandwidth());
  for (const std::int64_t context : options.contexts) {
    for (const int batch : options.batches) {
      auto row = measure_decode(*backend, plan, context, batch);
      LILY_TRY_VOID(measure_bandwidth());
      if (row) row->read_bytes_per_second = std::max(result.bandwidths.back(), *std::prev(result.bandwidths.end(), 2));
      LILY_TRY_VOID(add_row(result.decode, std::move(row), fmt::format("decode of {} at {}", batch, context)));
    }
  }
  const auto shortest = std::min_element(options.prefill.begin(), options.prefill.end());
  if (shortest != options.prefill.end() && *shortest + kRoomForTemplate <= model.checkpoint->max_positions()) {
    EngineOptions engine_options;
    engine_options.max_seq = *shortest + kRoomForTemplate;
    engine_options.cache_bytes = 0;
    LILY_TRY(const auto engine, Engine::create(std::move(backend), engine_options));
    LILY_TRY(result.first_token, measure_first_token(*engine, plan, *shortest));
    LILY_TRY(result.http_first_token, measure_http_first_token(*engine, model, plan, *shortest));
  }
  return result;
}

json::Array prefill_json(const std::vector<PrefillRow>& rows, const Shape& shape) {
  json::Array out;
  for (const PrefillRow& row : rows) {
    const double flops = prefill_flops(shape, row.tokens);
    out.push_back(json::Object{{"tokens", row.tokens},
                               {"seconds", to_json(row.seconds)},
                               {"tokens_per_second", to_json(per_second(static_cast<double>(row.tokens), row.seconds))},
                               {"gflop", flops / 1e9},
                               {"gflop_per_second", flops / row.seconds.median / 1e9}});
  }
  return out;
}

json::Array decode_json(const SpeedResult& result, const Shape& shape) {
  json::Array out;
  for (const DecodeRow& row : result.decode) {
    const double bytes = decode_step_bytes(shape, row.batch, row.context);
    const double achieved = bytes * row.steps / row.seconds.median;
    out.push_back(json::Object{
        {"context", row.context},
        {"batch", row.batch},
        {"steps", row.steps},
        {"seconds", to_json(row.seconds)},
        {"tokens_per_second", to_json(per_second(static_cast<double>(row.batch) * row.steps, row.seconds))},
        {"bytes_per_step", bytes},
        {"bytes_per_second", achieved},
        {"read_bytes_per_second", row.read_bytes_per_second},
        {"bandwidth_share", achieved / row.read_bytes_per_second}});
  }
  return out;
}

json::Object first_token_json(const PrefillRow& row, std::string_view through) {
  return {{"tokens", row.tokens}, {"through", through}, {"seconds", to_json(row.seconds)}};
}

json::Object speed_record(const BenchOptions& options, const BenchModel& model, const Shape& shape, json::Object head,
                          const SpeedResult& result) {
  json::Object record = std::move(head);
  record["model"] = model_json(model);
  record["repeats"] = options.repeats;
  record["read_bytes_per_second"] = to_json(spread_of(result.bandwidths));
  record["load"] =
      json::Object{{"seconds", result.load_seconds},
                   {"bytes_per_second", static_cast<double>(model.checkpoint->text_bytes()) / result.load_seconds}};
  record["prefill"] = prefill_json(result.prefill, shape);
  record["decode"] = decode_json(result, shape);
  json::Array first_token;
  if (result.first_token) first_token.push_back(first_token_json(*result.first_token, "engine"));
  if (result.http_first_token) first_token.push_back(first_token_json(*result.http_first_token, "http"));
  record["first_token"] = std::move(first_token);
  return record;
}

std::int64_t integer(const json::Value& value, const char* key) {
  return value.as_object().at(key).to_number<std::int64_t>();
}

double number(const json::Value& value, const char* key) {
  return value.as_object().at(key).to_number<double>();
}

void print_speed(const json::Object& record) {
  const auto& backend = record.at("backend").as_object();
  const auto& model = record.at("model").as_object();
  fmt::print("{} on {} ({})\n", model.at("id").as_string().c_str(), backend.at("name").as_string().c_str(),
             backend.at("description").as_string().c_str());
  const auto& bandwidth = record.at("read_bytes_per_second");
  fmt::print("{}; reads {:.1f} to {:.1f} GB/s\n", machine_line(record.at("machine").as_object()),
             number(bandwidth, "min") / 1e9, number(bandwidth, "max") / 1e9);
  fmt::print("loaded {} in {:.2f} s\n", human_bytes(backend.at("weight_bytes").to_number<std::uint64_t>()),
             number(record.at("load"), "seconds"));
  fmt::print("\n{:<12}{:>9}{:>7}{:>10}{:>10}{:>10}{:>12}\n", "", "tokens", "batch", "tokens/s", "least", "most", "");
  for (const auto& row : record.at("prefill").as_array()) {
    const auto& rate = row.as_object().at("tokens_per_second");
    fmt::print("{:<12}{:>9}{:>7}{:>10.1f}{:>10.1f}{:>10.1f}{:>12}\n", "prefill", integer(row, "tokens"), "",
               number(rate, "median"), number(rate, "min"), number(rate, "max"),
               fmt::format("{:.0f} GFLOP/s", number(row, "gflop_per_second")));
  }
  for (const auto& row : record.at("decode").as_array()) {
    const auto& rate = row.as_object().at("tokens_per_second");
    fmt::print("{:<12}{:>9}{:>7}{:>10.2f}{:>10.2f}{:>10.2f}{:>12}  {:.0f} % of the read bandwidth\n", "decode",
               integer(row, "context"), integer(row, "batch"), number(rate, "median"), number(rate, "min"),
               number(rate, "max"), fmt::format("{:.1f} GB/s", number(row, "bytes_per_second") / 1e9),
               100 * number(row, "bandwidth_share"));
  }
  for (const auto& row : record.at("first_token").as_array()) {
    const auto& seconds = row.as_object().at("seconds");
    fmt::print("{:<12}{:>9}{:>7}{:>10}  {:.3f} s (least {:.3f}, most {:.3f}) through {}\n", "first token",
               integer(row, "tokens"), "", "", number(seconds, "median"), number(seconds, "min"),
               number(seconds, "max"), row.as_object().at("through").as_string().c_str());
  }
}

Result<void> run_speed(const BenchOptions& options) {
  json::Object head = record_head("lily-bench-speed/1", options.command);  // load average before we raise it
  LILY_TRY(const BenchModel model, open_model(options.model));
  const Shape& shape = model.checkpoint->shape();
  LILY_TRY_VOID(check_sizes(options, shape));
  LILY_TRY(TimedBackend timed, open_backend(model, options.model));
  head["backend"] = backend_json(*timed.backend);
  LILY_TRY(SpeedResult result, measure(options, model, std::move(timed.backend)));
  result.load_seconds = timed.load_seconds;
  const json::Object record = speed_record(options, model, shape, std::move(head), result);
  if (options.json != "-") print_speed(record);
  return write_record(record, options.json);
}

}  // namespace

int run_bench(const BenchOptions& options) {
  log::set_level(log::Level::Warn);  // the server of the HTTP row has nothing to tell
  const auto done = options.suite == "cache" ? run_cache_suite(options) : run_speed(options);
  return done ? kExitOk : report(done.error());
}

}  // namespace lily::apps
