# The CUDA side: Hopper (sm_90a) only. So far it is the instrument that measures the card's read bandwidth.
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
# CMake 3.25 does not know how to ask nvcc 13 for C++20, so the flag is given by hand.
set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -std=c++20")
enable_language(CUDA)
add_executable(cuda_bandwidth ${CMAKE_SOURCE_DIR}/bench/device/cuda_bandwidth.cu)
set_target_properties(cuda_bandwidth PROPERTIES CUDA_RUNTIME_LIBRARY Static)
set_target_properties(cuda_bandwidth PROPERTIES CUDA_STANDARD_REQUIRED OFF)
