// `lily --version`: what this binary is and what it found.
#include "base/version.h"

#include <fmt/format.h>

#include <string>
#include <thread>

#include "apps/commands.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#ifndef LILY_BUILD_TYPE
#define LILY_BUILD_TYPE "unknown build"
#endif

namespace lily::apps {
namespace {

// The instruction sets that kernels of this program look for, as far as this CPU and system offer them.
std::string cpu_features() {
  std::string found;
  const auto note = [&](const char* name, bool present) {
    if (present) found += fmt::format("{}{}", found.empty() ? "" : " ", name);
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  note("AVX2", __builtin_cpu_supports("avx2"));
  note("FMA", __builtin_cpu_supports("fma"));
  note("AVX-512", __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"));
  note("VNNI", __builtin_cpu_supports("avx512vnni"));
  note("BF16", __builtin_cpu_supports("avx512bf16"));
  note("AMX-INT8", __builtin_cpu_supports("amx-int8"));
#elif defined(__aarch64__)
  const unsigned long bits = getauxval(AT_HWCAP);
  note("NEON", (bits & HWCAP_ASIMD) != 0);
  note("DotProd", (bits & HWCAP_ASIMDDP) != 0);
#endif
  return found.empty() ? "baseline only" : found;
}

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
      version(), commit(), LILY_BUILD_TYPE, compiler(), cpu_features(), std::thread::hardware_concurrency());
}

}  // namespace lily::apps
