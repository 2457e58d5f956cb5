#!/usr/bin/env bash
# Checks and times everything that needs a Hopper GPU or an AMX processor, in one call on such a machine.
#   scripts/gpu-check.sh pack      build machine: puts the programs into build/device-pack (self-contained, under 64 MiB)
#   scripts/gpu-check.sh           device machine: runs them; builds first if there is no pack and the tools are there
#   scripts/gpu-check.sh --bench   the same, then the benchmark of the 35B shape on synthetic weights (needs 22 GB of disk)
# Environment: LILY_SCRATCH, where the synthetic weights go (default /tmp/lily-35b); LILY_LOG, a file to copy the output to.
set -euo pipefail
cd "$(dirname "$0")/.."
pack=build/device-pack
export LILY_SOURCE_DIR=$PWD  # the tests were built elsewhere
scratch=${LILY_SCRATCH:-/tmp/lily-35b}
[ -z "${LILY_LOG:-}" ] || exec > >(tee "$LILY_LOG") 2>&1

make_pack() {
  [ -f build/release/build.ninja ] || cmake --preset release >/dev/null
  cmake --build build/release --target lily conformance -- --quiet
  mkdir -p "$pack"
  strip -o "$pack/lily" build/release/lily
  strip -o "$pack/conformance" build/release/tests/conformance
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    [ -f build/cuda/build.ninja ] || cmake --preset cuda >/dev/null
    cmake --build build/cuda --target cuda_bandwidth -- --quiet
    cp build/cuda/cuda_bandwidth "$pack/"
  fi
  du -sh "$pack"
}

failures=0
step() {  # name command...
  local name=$1 status=0
  shift
  echo "== $name"
  "$@" || status=$?
  if [ "$status" -ne 0 ]; then
    echo "FAILED ($status): $name"
    failures=$((failures + 1))
  fi
}

has_flag() { grep -qw "$1" /proc/cpuinfo; }

case "${1:-}" in
  pack) make_pack; exit ;;
  ""|--bench) ;;
  *) sed -n '2,6p' "$0"; exit 2 ;;
esac
[ -x "$pack/lily" ] || make_pack

echo "== machine"
lscpu | grep -E '^(Model name|CPU\(s\)|Thread|L2|L3)' || true
free -g | sed -n 2p
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader 2>/dev/null || echo "no NVIDIA GPU"
"$pack/lily" --version

[ -x "$pack/cuda_bandwidth" ] && step "GPU read bandwidth" "$pack/cuda_bandwidth"

isas="generic"
has_flag avx2 && isas+=" avx2"
has_flag avx512_vnni && isas+=" avx512"
has_flag amx_int8 && isas+=" amx"
for isa in $isas; do
  step "conformance on $isa" env LILY_CPU_ISA="$isa" "$pack/conformance" --gtest_brief=1
done

question="Please write the sum: what is 27 + 45?"
echo "== the embedded model gives the same answer on every instruction set"
first=""
for isa in $isas; do
  answer=$(LILY_CPU_ISA=$isa "$pack/lily" generate "$question" 2>/dev/null) || answer="(failed)"
  echo "$isa: $answer"
  [ -n "$first" ] || first=$answer
  if [ "$answer" != "$first" ] || [ "$answer" = "(failed)" ]; then failures=$((failures + 1)); fi
done

if [ "${1:-}" = --bench ]; then
  [ -f "$scratch/config.json" ] || step "synthetic weights of the 35B shape" "$pack/lily" synth --shape Qwen3.6-35B-A3B "$scratch"
  # One short record each, so that what is done is kept when time runs out.
  step "bench, short" "$pack/lily" bench --model "$scratch" --prefill 512 --contexts 256 --repeats 5
  step "bench, batches" "$pack/lily" bench --model "$scratch" --prefill 256 --contexts 256 --batches 4,16 --repeats 5
  step "bench, long" "$pack/lily" bench --model "$scratch" --prefill 4096 --contexts 4096 --repeats 3
fi

echo "device check: $((failures)) failed"
exit "$((failures > 0))"
