// CPUID by way of the compiler's run-time library, HWCAP on AArch64.
#include "base/cpu_features.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lily {

namespace {

#if defined(__x86_64__)
// The kernel keeps the tile registers off until a process asks for them.
bool request_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool tiles = (edx >> 24) & 1u, int8 = (edx >> 25) & 1u;
  if (!tiles || !int8) return false;
  constexpr long kArchReqXcompPerm = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}
#endif

CpuFeatures detect() {
  CpuFeatures features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512vnni");
  features.amx = features.avx512 && request_amx();
#elif defined(__aarch64__)
  features.dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
  return features;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string cpu_feature_names() {
  const CpuFeatures& f = cpu_features();
  std::string names;
  const auto add = [&](bool present, const char* name) {
    if (!present) return;
    if (!names.empty()) names += ' ';
    names += name;
  };
  add(f.avx2, "avx2");
  add(f.avx512, "avx512-vnni");
  add(f.amx, "amx-int8");
  add(f.dotprod, "dotprod");
  return names.empty() ? "baseline" : names;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int n = CPU_COUNT(&set);
    if (n > 0) return n;
  }
  const unsigned n = std::thread::hardware_concurrency();
  return n > 0 ? static_cast<int>(n) : 1;
}

}  // namespace lily
