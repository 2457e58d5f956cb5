// How fast this machine's memory can be read: the bound that decoding is held against.
#pragma once

#include <cstddef>

namespace lily {

// Bytes a second that n_threads (0: all cores of this process) together read from memory, the best of ten passes over
// bytes_per_thread each; takes that much memory meanwhile. 0 if there is not so much.
double read_bandwidth(int n_threads, std::size_t bytes_per_thread = std::size_t{256} << 20);

}  // namespace lily
