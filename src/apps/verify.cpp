// lily verify: one line for each check, failures on standard error.
#include "model/verify.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "apps/commands.h"
#include "base/progress.h"

namespace lily::apps {
namespace {

const char* label(VerifyLine::Outcome outcome) {
  switch (outcome) {
    case VerifyLine::Outcome::Passed:
      return "ok";
    case VerifyLine::Outcome::Failed:
      return "FAILED";
    case VerifyLine::Outcome::NotChecked:
      return "not checked";
    case VerifyLine::Outcome::Note:
      return "note";
  }
  return "";
}

}  // namespace

int run_verify(const VerifyOptions& options) {
  std::optional<Progress> progress;
  VerifySpec spec{.quick = options.quick, .progress = [&](std::uint64_t done, std::uint64_t total) {
                    if (!progress) progress.emplace("reading", total);
                    progress->set(done);
                  }};
  const auto report = verify_checkpoint(options.directory, spec);
  progress.reset();
  if (!report) {
    fmt::print(stderr, "lily: {}\n", report.error().message);
    return kExitFailed;
  }
  for (const VerifyLine& line : report->lines)
    fmt::print(line.outcome == VerifyLine::Outcome::Failed ? stderr : stdout, "{:<12} {}\n", label(line.outcome),
               line.text);
  fmt::print("{}: {}\n", options.directory, report->sound() ? "sound, as far as it was checked" : "NOT sound");
  return report->sound() ? kExitOk : kExitFailed;
}

}  // namespace lily::apps
