#include "apps/bench_record.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include "base/check.h"
#include "base/cpu_features.h"
#include "base/version.h"

namespace lily::apps {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  LILY_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {.median = median, .min = values.front(), .max = values.back()};
}

json::Object to_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

json::Object machine_json() {
  utsname system{};
  uname(&system);
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return {{"cpu", cpu_model()},
          {"cores", usable_cores()},
          {"memory_bytes", static_cast<std::uint64_t>(memory)},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"load_average", load}};
}

std::string machine_line(const json::Object& machine) {
  return fmt::format("{}, {} cores, {:.0f} GB, load average {:.2f}", machine.at("cpu").as_string().c_str(),
                     machine.at("cores").to_number<int>(), machine.at("memory_bytes").to_number<double>() / 1e9,
                     machine.at("load_average").to_number<double>());
}

json::Object record_head(std::string_view schema, const std::string& command) {
  return {{"schema", schema},     {"date", utc_now()},  {"command", command},
          {"version", version()}, {"commit", commit()}, {"machine", machine_json()}};
}

Result<void> write_record(const json::Object& record, const std::string& path) {
  if (path.empty()) return {};
  const std::string text = json::dump(record) + "\n";
  std::FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
  if (file == nullptr) return fail(ErrorCode::Io, "cannot write '{}': {}", path, std::strerror(errno));
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  if (file != stdout) good = std::fclose(file) == 0 && good;
  if (!good) return fail(ErrorCode::Io, "cannot write '{}': {}", path, std::strerror(errno));
  return {};
}

}  // namespace lily::apps
