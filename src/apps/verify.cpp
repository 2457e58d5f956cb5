// lily verify: one line for each check, failures on standard error.
#include "model/verify.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "apps/commands.h"
#include "base/progress.h"
#include "model/checkpoint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

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

// What the program reads besides the weights, as it will read it.
void check_texts(const Checkpoint& checkpoint, std::vector<VerifyLine>& lines) {
  const auto add = [&](const auto& loaded, const char* what) {
    if (loaded) {
      lines.push_back({VerifyLine::Outcome::Passed, fmt::format("{} is as this program needs it", what)});
    } else {
      lines.push_back({VerifyLine::Outcome::Failed, loaded.error().message});
    }
  };
  const auto& texts = checkpoint.texts();
  add(Tokenizer::load(texts.tokenizer_json, texts.tokenizer_config), "the tokenizer");
  add(ChatTemplate::load(texts.chat_template), "the chat template");
}

}  // namespace

int run_verify(const VerifyOptions& options) {
  std::optional<Progress> progress;
  VerifySpec spec{.quick = options.quick, .progress = [&](std::uint64_t done, std::uint64_t total) {
                    if (!progress) progress.emplace("reading", total);
                    progress->set(done);
                  }};
  auto report = verify_checkpoint(options.directory, spec);
  progress.reset();
  if (!report) {
    fmt::print(stderr, "lily: {}\n", report.error().message);
    return kExitFailed;
  }
  if (const auto checkpoint = Checkpoint::open(options.directory)) check_texts(*checkpoint, report->lines);
  for (const VerifyLine& line : report->lines)
    fmt::print(line.outcome == VerifyLine::Outcome::Failed ? stderr : stdout, "{:<12} {}\n", label(line.outcome),
               line.text);
  fmt::print("{}: {}\n", options.directory, report->sound() ? "sound, as far as it was checked" : "NOT sound");
  return report->sound() ? kExitOk : kExitFailed;
}

}  // namespace lily::apps
