// Weak definitions of the subcommands, so that the program links while their files are being written; each is
// overridden by the file of its name.
#include <cstdio>

#include "apps/commands.h"

namespace lily::apps {
namespace {

int absent(const char* name) {
  std::fprintf(stderr, "lily: this build has no '%s'\n", name);
  return kExitFailed;
}

}  // namespace

[[gnu::weak]] int run_serve(const ServeOptions&) {
  return absent("serve");
}
[[gnu::weak]] int run_generate(const GenerateOptions&) {
  return absent("generate");
}
[[gnu::weak]] int run_chat(const ChatCommandOptions&) {
  return absent("chat");
}
[[gnu::weak]] int run_bench(const BenchOptions&) {
  return absent("bench");
}
[[gnu::weak]] int run_eval(const EvalOptions&) {
  return absent("eval");
}
[[gnu::weak]] int run_inspect(const InspectOptions&) {
  return absent("inspect");
}
[[gnu::weak]] int run_verify(const VerifyOptions&) {
  return absent("verify");
}
[[gnu::weak]] int run_synth(const SynthOptions&) {
  return absent("synth");
}

}  // namespace lily::apps
