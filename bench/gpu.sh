#!/usr/bin/env bash
# Everything that wants a machine with NVIDIA GPUs, in under ten minutes, without a network or a container engine.
#
#     bench/gpu.sh [OUT] [WORD...]        OUT: where results go [bench/out/gpu]; --help tells more
#
# Needs: Linux x86-64, a python3 from 3.11 on (PYTHON names another) that has CuPy, torch with CUDA and NumPy, and what
# bench/carry.sh brought to bench/carried/.
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_session.py" "$@"
