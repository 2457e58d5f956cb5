// What this machine's memory delivers to plain sequential reads: the bound that decoding is measured against.
#pragma once

#include "base/error.h"

namespace lily::cpu {

// Bytes a second that a team of n_threads (0: every usable core) reads from memory, each thread its own region, far
// larger than any cache. The best of several passes: a limit, not an average. Errors: OutOfMemory.
Result<double> measure_read_bandwidth(int n_threads);

}  // namespace lily::cpu
