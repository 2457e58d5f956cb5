// A weak definition of the one subcommand whose file is still being written, so that the program links; it is
// overridden by that file.
#include <cstdio>

#include "apps/commands.h"

namespace lily::apps {

[[gnu::weak]] int run_serve(const ServeOptions&) {
  std::fprintf(stderr, "lily: this build has no 'serve'\n");
  return kExitFailed;
}

}  // namespace lily::apps
