// Read bandwidth of an NVIDIA GPU: the bound of decoding there. Streams a buffer far larger than the L2 cache with
// 16-byte loads and prints the median of several runs, each checked by the sum that it computed.
//   cuda_bandwidth [GIB]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

__global__ void fill_kernel(uint4* data, std::size_t n) {
  const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
  for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    const std::uint32_t x = std::uint32_t(i) * 2654435761u;  // not constant: a chip may read constant data faster
    data[i] = make_uint4(x, x ^ 0x55555555u, x + 1, ~x);
  }
}

__global__ void __launch_bounds__(512) read_kernel(const uint4* data, std::size_t n, unsigned long long* sum) {
  const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
  std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  std::uint32_t total = 0;
  for (; i + 3 * stride < n; i += 4 * stride) {  // four independent loads in flight a thread
    const uint4 a = __ldcs(data + i), b = __ldcs(data + i + stride);
    const uint4 c = __ldcs(data + i + 2 * stride), d = __ldcs(data + i + 3 * stride);
    total += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) + (d.x ^ d.y ^ d.z ^ d.w);
  }
  for (; i < n; i += stride) {
    const uint4 a = __ldcs(data + i);
    total += a.x ^ a.y ^ a.z ^ a.w;
  }
  atomicAdd(sum, static_cast<unsigned long long>(total));
}

}  // namespace

int main(int argc, char** argv) {
  const double gib = argc > 1 ? std::atof(argv[1]) : 4.0;
  const std::size_t n = static_cast<std::size_t>(gib * (1ull << 30)) / sizeof(uint4);
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "no usable CUDA device");
  uint4* data = nullptr;
  unsigned long long* sum = nullptr;
  check(cudaMalloc(&data, n * sizeof(uint4)), "allocating the buffer");
  check(cudaMalloc(&sum, sizeof *sum), "allocating the sum");
  const int blocks = device.multiProcessorCount * 4;
  fill_kernel<<<blocks, 512>>>(data, n);
  check(cudaDeviceSynchronize(), "filling");

  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> ms;
  unsigned long long first = 0;
  for (int run = 0; run < 12; ++run) {
    check(cudaMemset(sum, 0, sizeof *sum), "memset");
    check(cudaEventRecord(begin), "record");
    read_kernel<<<blocks, 512>>>(data, n, sum);
    check(cudaEventRecord(end), "record");
    check(cudaEventSynchronize(end), "reading");
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, begin, end), "elapsed");
    unsigned long long total = 0;
    check(cudaMemcpy(&total, sum, sizeof total, cudaMemcpyDeviceToHost), "copy");
    if (run == 0) first = total;
    if (total != first) {
      std::fprintf(stderr, "error: two reads of the same memory gave different sums\n");
      return 1;
    }
    if (run >= 2) ms.push_back(elapsed);
  }
  std::sort(ms.begin(), ms.end());
  const double bytes = static_cast<double>(n) * sizeof(uint4);
  std::printf("%s: %.0f GB/s median, %.0f to %.0f, %.1f GiB, %zu runs\n", device.name, bytes / ms[ms.size() / 2] / 1e6,
              bytes / ms.back() / 1e6, bytes / ms.front() / 1e6, gib, ms.size());
  return 0;
}
