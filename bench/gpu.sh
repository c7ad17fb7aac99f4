#!/usr/bin/env bash
# All measurements and tests on NVIDIA GPUs, in under ten minutes, without a network or a container engine.
#
#     bench/gpu.sh [OUT] [WORD...]        OUT: where results go [bench/out/gpu]; see --help
#
# Needs Linux x86-64, a python3 from 3.11 on (PYTHON names another) with CuPy, torch with CUDA and NumPy, and
# bench/carried/ as filled by bench/carry.sh.
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_session.py" "$@"
