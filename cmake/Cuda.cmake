# The CUDA side: Hopper (sm_90a) only. So far it is the instrument that measures the card's read bandwidth.
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
set(CMAKE_CUDA_STANDARD 20)
enable_language(CUDA)
add_executable(cuda_bandwidth ${CMAKE_SOURCE_DIR}/bench/device/cuda_bandwidth.cu)
set_target_properties(cuda_bandwidth PROPERTIES CUDA_RUNTIME_LIBRARY Static)
