// Which kernels run here.
#include <cstdlib>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/cpu_features.h"

namespace lily::cpu {

std::span<const Kernels* const> runnable_kernels() {
  static const std::vector<const Kernels*> tables = [] {
    [[maybe_unused]] const CpuFeatures& f = cpu_features();
    std::vector<const Kernels*> found;
#if defined(__x86_64__)
    if (f.amx) found.push_back(&amx_kernels());
    if (f.avx512) found.push_back(&avx512_kernels());
    if (f.avx2) found.push_back(&avx2_kernels());
#elif defined(__aarch64__)
    if (f.dotprod) found.push_back(&neon_kernels());
#endif
    found.push_back(&generic_kernels());
    return found;
  }();
  return tables;
}

const Kernels* choose_kernels() {
  const char* wanted = std::getenv("LILY_CPU_ISA");
  for (const Kernels* table : runnable_kernels())
    if (wanted == nullptr || *wanted == '\0' || table->name == wanted) return table;
  return nullptr;
}

}  // namespace lily::cpu
