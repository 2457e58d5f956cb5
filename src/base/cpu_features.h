// What this processor and its operating system offer.
#pragma once

#include <string>

namespace lily {

struct CpuFeatures {
  bool avx2 = false;     // with FMA, F16C and BMI2
  bool avx512 = false;   // F, BW, DQ, VL and VNNI
  bool amx = false;      // tiles with int8, granted to this process
  bool dotprod = false;  // AArch64
};

// Asked once; asking also requests the AMX state from the kernel.
const CpuFeatures& cpu_features();

// Names of the features present, separated by blanks; "baseline" if none.
std::string cpu_feature_names();

// Cores that this process may run on, at least 1.
int usable_cores();

}  // namespace lily
