// Which kernels run here.
#include <array>
#include <cstdlib>

#include "backend/cpu/kernels.h"
#include "base/cpu_features.h"

namespace lily::cpu {

namespace {

struct Candidate {
  bool runs_here;
  const Kernels& (*table)();
};

}  // namespace

const Kernels* choose_kernels() {
  const CpuFeatures& f = cpu_features();
  // Best first.
  const std::array candidates{
#if defined(__x86_64__)
      Candidate{f.amx, &amx_kernels},
      Candidate{f.avx512, &avx512_kernels},
      Candidate{f.avx2, &avx2_kernels},
#elif defined(__aarch64__)
      Candidate{f.dotprod, &neon_kernels},
#endif
      Candidate{true, &generic_kernels},
  };
  const char* wanted = std::getenv("LILY_CPU_ISA");
  for (const Candidate& candidate : candidates) {
    if (!candidate.runs_here) continue;
    if (wanted == nullptr || *wanted == '\0' || candidate.table().name == wanted) return &candidate.table();
  }
  (void)f;
  return nullptr;
}

}  // namespace lily::cpu
