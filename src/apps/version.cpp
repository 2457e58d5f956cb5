// `lily --version`: what this binary is and what it found.
#include "base/version.h"

#include <fmt/format.h>

#include <string>

#include "apps/commands.h"
#include "base/cpu_features.h"
#include "base/version.h"

#ifndef LILY_BUILD_TYPE
#define LILY_BUILD_TYPE "unknown build"
#endif

namespace lily::apps {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}", __clang_major__, __clang_minor__);
#else
  return fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
}

}  // namespace

std::string version_text() {
  return fmt::format(
      "lily {} (commit {})\n"
      "build:    {}, {}\n"
      "backends: cpu, reference\n"
      "cpu:      {}, {} threads",
      version(), commit(), LILY_BUILD_TYPE, compiler(), cpu_feature_names(), usable_cores());
}

}  // namespace lily::apps
