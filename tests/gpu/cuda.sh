#!/usr/bin/env bash
# Compiles and tests what stands behind the tag cuda, on a machine that needs no GPU: cuda.sh PYTHON
#
# CUDA 12's headers come from NVIDIA's package on PyPI into build/cuda; gorgonia.org/cu, which links libcuda, gets raygo's own, whose
# functions look for the driver when they are called. cu v0.9.6 does not compile against CUDA 13.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=$1
into=$PWD/build/cuda
if [ ! -e "$into/nvidia/cuda_runtime/include/cuda.h" ]; then
  # Without a network there is nothing to compile against; that is no fault of the code.
  timeout 300 "$python" -m uv pip install -q --target "$into" --no-deps 'nvidia-cuda-runtime-cu12==12.*' \
    || timeout 300 "$python" -m pip install -q --target "$into" --no-deps 'nvidia-cuda-runtime-cu12==12.*' \
    || { echo "CUDA's headers cannot be had: skipped" >&2; exit 0; }
fi
include=$into/nvidia/cuda_runtime/include
${CC:-cc} -O2 -fPIC -Wall -Wextra -Werror -I"$include" -Iengine/gpu/lazy -Icollective/cuda/lazy -c collective/cuda/lazy/cuda.c -o "$into/cuda.o"
rm -f "$into/libcuda.a"
ar rcs "$into/libcuda.a" "$into/cuda.o"
export CGO_CFLAGS="-O2 -I$include -Wno-deprecated-declarations" CGO_LDFLAGS="-L$into"
go vet -tags cuda ./collective/cuda
timeout 600 go test -tags cuda ./collective/cuda
