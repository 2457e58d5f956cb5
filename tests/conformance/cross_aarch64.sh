#!/bin/sh
# Builds the kernel test for AArch64 and runs it in an emulator: the NEON kernels against the generic ones, bit for bit.
# Needs g++-aarch64-linux-gnu, qemu-user-static and the sources of GoogleTest (package googletest). From the repository root.
set -eu
out=${1:-build/aarch64}
mkdir -p "$out"
cxx="aarch64-linux-gnu-g++ -std=c++20 -O2 -fno-math-errno -ffp-contract=off -Wno-missing-field-initializers -Isrc -Itests"
gtest=/usr/src/googletest/googletest
$cxx -I$gtest -I$gtest/include -c $gtest/src/gtest-all.cc -o "$out/gtest.o"
$cxx -I$gtest/include -c $gtest/src/gtest_main.cc -o "$out/gtest_main.o"
for source in src/backend/cpu/kernels_generic.cpp src/backend/cpu/dispatch.cpp src/base/cpu_features.cpp; do
  $cxx -c $source -o "$out/$(basename $source .cpp).o"
done
$cxx -march=armv8.2-a+dotprod -c src/backend/cpu/kernels_neon.cpp -o "$out/kernels_neon.o"
$cxx -I$gtest/include -c tests/conformance/cpu_kernels_test.cpp -o "$out/cpu_kernels_test.o"
$cxx -static "$out"/*.o -o "$out/cpu_kernels_test"
qemu-aarch64-static "$out/cpu_kernels_test"
