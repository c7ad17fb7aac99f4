"""Suite `gpu`: its results on the made-up device, its checks, from the command line to the record, what is missing.

Kernels and cuBLAS through CuPy are tested against a CuPy that is made up.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.machinery
import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from tests.double.device import DoubleDevice
from tests.double.kernels import DoubleCompute
from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT
from tests.unit.test_placement import machine, with_gpus

from collbench import workloads
from collbench.bindings.gpu import cupy_device
from collbench.bindings.gpu.cupy_device import CupyCompute, Grid
from collbench.collectives.row import Array
from collbench.errors import BackendUnavailable, LibraryError, PlanError, Unsupported, to_install
from collbench.launch.expansion import expand
from collbench.run.cases import program_cases
from collbench.schema import world
from collbench.schema.plan import Plan, load_launch_plan
from collbench.timing.loop import Native, Stage
from collbench.workloads import software
from collbench.workloads.gpu import device, suite
from collbench.workloads.gpu.device import OpenGpu

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is compiled for the host, once."""
    if shutil.which("g++") is None:
        skip_or_fail("cuda", "there is no g++, which compiles CUDA kernels for the host")
    return tmp_path_factory.mktemp("kernels")


# Results and their checks --------------------------------------------------------------------------------------------

Run = Callable[[OpenGpu, argparse.Namespace], dict[str, Any]]

RUNS: dict[str, tuple[Run, dict[str, Any]]] = {
    "copy": (suite.copy, {"size": 5000, "memory": "pinned"}),
    "copy pageable": (suite.copy, {"size": 1, "memory": "pageable"}),
    "convolution": (suite.convolution, {"width": 70}), "convolution of one pixel": (suite.convolution, {"width": 1}),
    "gemm": (suite.gemm, {"m": 7, "n": 9, "k": 11}), "gemm of one product": (suite.gemm, {"m": 1, "n": 1, "k": 1}),
    "histogram": (suite.histogram, {"size": 4096, "bins": 64}),
    "histogram 256": (suite.histogram, {"size": 4, "bins": 256}),
    **{f"transpose {variant}": (suite.transpose, {"order": 48, "variant": variant}) for variant in suite.VARIANTS},
    "launch": (suite.launch, {"burst": 200})
}  # fmt: skip

Result = Callable[..., dict[str, Any]]


@pytest.fixture
def result(folder: Path) -> Result:
    """`result(name, ...)`: what a run prints, on a device of its own; `edits` are changes of its source: old, new."""

    def run(name: str, *edits: tuple[str, str], compute: type[DoubleCompute] = DoubleCompute, **flags: Any) -> Any:
        def edited(source: str) -> str:
            for old, new in edits:
                assert old in source
                source = source.replace(old, new)
            return source

        double = DoubleDevice("GPU-0")
        function, usual = RUNS[name]
        gpu = OpenGpu(double, compute(double, folder, edited))
        return function(gpu, argparse.Namespace(**({"times": 3} | usual | flags)))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_results_are_right_and_every_measure_has_its_samples(result: Result, name: str) -> None:
    output = result(name)
    assert output["wrong"] == 0
    measures = [measure.name for measure in workloads.get(f"gpu_{name.split()[0]}").measures]
    assert {measure: len(taken) for measure, taken in output["ns"].items()} == dict.fromkeys(measures, 3)
    assert min(min(taken) for taken in output["ns"].values()) > 0
    assert all(figure.endswith("device_ns") for figure in output["figures"])
    assert output["notes"][0] == "Double GPU-0, driver 0"
    in_python = [note for note in output["notes"] if note.startswith("driver python: ")]
    assert len(in_python) == name.startswith("gemm") and all("cuBLAS" in note for note in in_python)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["copy", "convolution", "histogram", "transpose optimized", "launch"])
def test_in_python_they_are_right_too(result: Result, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "why_not_native", lambda *_: "it was forbidden")
    output = result(name)
    assert (output["wrong"], output["notes"][1]) == (0, "driver python: it was forbidden")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "old", "new"), [
    ("convolution", "{3, 1, 4,", "{3, 1, 5,"), ("convolution", "RADIUS - tap][", "RADIUS + tap]["),
    ("convolution", "threadIdx.x + RADIUS - tap", "threadIdx.x + RADIUS + tap"),
    ("convolution", "if (column >= side || row >= side) return", "if (column >= side - 1 || row >= side) return"),
    ("convolution", "__syncthreads();", ""),
    ("histogram", "partial[blockIdx.x * BINS + bin] = sum", "partial[blockIdx.x * BINS + bin] = sum + (bin == 63)"),
    ("histogram", "counts[i / BINS][i % BINS] = 0", "counts[i / BINS][i % BINS] = 1"),
    ("histogram", "shift < 32", "shift < 24"), ("histogram", "        __syncthreads();\n        if", "        if"),
    ("launch", "atomicAdd(counter, 1u)", "atomicAdd(counter, 2u)"),
    ("launch", "threadIdx.x == 0) atomicAdd", "threadIdx.x == 1) atomicAdd"),
    ("transpose naive", "ROW(blockIdx.y) + i)] = in", "ROW(blockIdx.x) + i)] = in"),
    ("transpose coalesced", "tile[threadIdx.x][threadIdx.y + i]", "tile[threadIdx.y + i][threadIdx.x]"),
    ("transpose optimized", "__syncthreads();", ""),
    ("transpose diagonal", "(blockIdx.x + blockIdx.y) % gridDim.x", "blockIdx.x"),
    ("transpose simple_copy", "i < TILE", "i < TILE - ROWS"),
    ("transpose coarse_grained", "ROW(blockIdx.x)", "ROW(blockIdx.y)"),
    ("transpose fine_grained", "tile[threadIdx.x][threadIdx.y + i]", "tile[threadIdx.y + i][threadIdx.x]")
])  # fmt: skip
def test_a_wrong_kernel_is_noticed(result: Result, name: str, old: str, new: str) -> None:
    assert result(name, (old, new))["wrong"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coarse_grained", "fine_grained"])
def test_a_whole_transpose_is_not_taken_for_half_of_one(result: Result, name: str) -> None:
    """With a copy as the other half, both together would still transpose."""
    other = suite.OTHER_HALF[name]
    edits = [(f"void {one}(", f"void was_{one}(") for one in (name, other)]
    edits += [("void optimized(", f"void {name}("), ("void shared_memory_copy(", f"void {other}(")]
    assert result(f"transpose {name}", *edits)["wrong"] > 0


class Tf32(DoubleCompute):
    """Rounds what it multiplies to a significand of 11 bits, as tensor cores take float32."""

    @staticmethod
    def rounded(matrix: Array) -> Array:
        bits = matrix.view(np.uint32) + np.uint32(1 << 12)
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)


class Idle(DoubleCompute):
    """Computes nothing."""

    def sgemm(self, *_: Any) -> Stage:
        return Stage(lambda: None)


class Transposed(DoubleCompute):
    """Takes B for its transpose, as a mistake in the order of a library's arguments would."""

    def sgemm(self, m: int, n: int, k: int, a: Any, b: Any, c: Any) -> Stage:
        return super().sgemm(m, n, k, b, a, c)


class OnlyInPython(DoubleCompute):
    """What the loop in C calls does nothing; the same calls from Python work."""

    def __init__(self, device: DoubleDevice, folder: Path, edit: Callable[[str], str]) -> None:
        super().__init__(device, folder, edit)
        device.functions.add("cuLaunchKernel", lambda *words: None, 11)
        device.functions.add("cudaMemcpyAsync", lambda *words: None, 5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "compute"), [
    *(("gemm", compute) for compute in (Tf32, Idle, Transposed)),
    *((name, OnlyInPython) for name in ("copy", "convolution", "histogram", "transpose simple_copy", "launch")),
])  # fmt: skip
def test_a_wrong_computation_is_noticed(result: Result, name: str, compute: type[DoubleCompute]) -> None:
    """Also a product whose factors were rounded to TF32, and a wrong one that was timed after right ones without."""
    flags = dict.fromkeys("mnk", 8) if name == "gemm" else {}
    assert result(name, compute=compute, **flags)["wrong"] > 0


@pytest.mark.slow
def test_what_is_computed_on_the_host_is_exact_and_the_same_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors are whole numbers whose sums are exact."""
    for k in (1, 70_000, 500_000, suite.MOST_PRODUCTS):
        most = suite.largest(k)
        assert 1 <= most <= 15 and k * most**2 + suite.ODD * most < 2**24
    image = suite.image(130, 0, 130)
    assert (suite.image(130, 50, 70) == image[50:70]).all()
    assert not suite.image(130, -8, 0).any() and not suite.image(130, 130, 140).any()
    assert [last - first for first, last in suite.checked_rows(18432)] == [16, 32, 16]
    values = np.arange(1000, dtype=np.uint16).astype(np.uint8)
    counts = suite.counted(values, 64)
    monkeypatch.setattr(suite, "AT_ONCE", 7)
    assert (suite.counted(values, 64) == counts).all()
    assert counts.sum() == 1000 and counts[0] == np.count_nonzero(values < 4)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize(("kind", "wrong"), [(1, "h2d"), (2, "d2h"), (3, "d2d")])
def test_a_copy_that_is_a_byte_short_is_noticed(result: Result, kind: int, wrong: str, memory: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    whole = DoubleDevice.copy

    def short(self: DoubleDevice, target: int, source: int, size: int, way: int) -> None:
        whole(self, target, source, size - (way == kind), way)

    monkeypatch.setattr(DoubleDevice, "copy", short)
    assert result("copy", memory=memory)["wrong"] == 1


@pytest.mark.slow
def test_a_graph_with_too_few_launches_is_noticed(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = DoubleDevice.capture
    monkeypatch.setattr(DoubleDevice, "capture", lambda self, issue, times: capture(self, issue, times - 1))
    assert result("launch")["wrong"] == 2


@pytest.mark.slow
def test_samples_begin_with_an_empty_stream_and_issue_does_not_wait(result: Result) -> None:
    """What is queued when a sample of `issue` ends is done before the next begins, outside of its time."""
    queued: list[int] = []

    class Watched(DoubleCompute):
        def launch(self, function: int, *words: int) -> None:
            queued.append(len(self.device.queue))
            super().launch(function, *words)

    result("launch", compute=Watched, burst=200)
    assert max(queued) == 199


@pytest.mark.slow
def test_the_order_of_calls(result: Result) -> None:
    """A sample of one operation with its wait, after a wait; then events around it; of launches each way."""
    traces: list[list[str]] = []

    class Traced(DoubleCompute):
        def __init__(self, device: DoubleDevice, *more: Any) -> None:
            super().__init__(device, *more)
            traces.append(device.trace)

    wait, kernel, record = "cudaStreamSynchronize", "cuLaunchKernel", "cudaEventRecord"
    result("transpose naive", compute=Traced, times=2)
    assert traces[0] == 2 * [wait, kernel, wait] + 2 * [wait, record, kernel, record, wait, "cudaEventElapsedTime"]
    result("launch", compute=Traced, times=1, burst=100)
    ways = [wait, *100 * [kernel], wait, *100 * [kernel, wait], wait, "cudaGraphLaunch", wait]
    assert traces[1][: 2 * len(ways)] == 2 * ways  # with the kernel that counts, and then with the one that is timed


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 200, 1000])
@pytest.mark.parametrize("name", ["gemm", "convolution", "transpose fine_grained"])
def test_arrays_are_copied_by_parts(result: Result, name: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to a row at a time; what is checked does not depend on it."""
    monkeypatch.setattr(device, "PART", part)
    assert result(name)["wrong"] == 0
    if name == "gemm":
        assert result(name, compute=Tf32)["wrong"] > 0


# From the command line -----------------------------------------------------------------------------------------------

SMALL = ("gpu", "size=64", "memory=pageable", "width=32", "order=32", "variant=diagonal", "m=5", "n=6", "k=7",
         "burst=100", "bins=64")  # fmt: skip
Started = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def started(folder: Path, bare_environment: dict[str, str], tmp_path: Path) -> Started:
    """`started(words..., NAME=VALUE...)`: `collbench suite` on the double, kept: exit code, records, standard error."""

    numbers = itertools.count()

    def start(*words: str, **variables: str) -> tuple[int, list[dict[str, Any]], str]:
        kept = ("--out", str(tmp_path / f"run-{next(numbers)}"))
        argv = (sys.executable, "-m", "tests.double.main", "suite", *words, "-n", "2", "--style", "json", *kept)
        env = bare_environment | {"DOUBLE_KERNELS": str(folder)} | variables
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
        return done.returncode, json.loads(done.stdout)["records"] if done.stdout else [], done.stderr

    return start


@pytest.mark.slow
def test_the_suite_from_the_command_line(started: Started) -> None:
    code, records, errors = started(*SMALL)
    assert (code, [record["reason"] for record in records if record["status"] != "ok"]) == (0, []), errors
    measures: dict[str, list[str]] = {}
    for record in records:
        measures.setdefault(record["case"]["workload"], []).append(record["case"]["what"]["measure"])
        assert (record["check"]["wrong"], record["samples"]["n"]) == (0, 2)
        assert record["notes"][-1] != "" and "Double GPU-0, driver 0" in record["notes"]
    names = workloads.suites()["gpu"]
    assert measures == {name: [measure.name for measure in workloads.get(name).measures] for name in names}
    work = {record["case"]["workload"]: (record["work"]["amount"], record["work"]["unit"]) for record in records}
    assert work == {"gpu_copy": (64, "bytes"), "gpu_convolution": (32 * 32, "pixels"),
                    "gpu_gemm": (2 * 5 * 6 * 7, "flop"), "gpu_histogram": (64, "bytes"),
                    "gpu_transpose": (8 * 32 * 32, "bytes"), "gpu_launch": (100, "launches")}  # fmt: skip


@pytest.mark.slow
def test_a_case_that_cannot_be_is_skipped_or_fails_with_the_reason(started: Started) -> None:
    code, (record,), _ = started("gpu_transpose", "order=16", "variant=naive", DOUBLE_EDIT="i < TILE=>i < 1 - TILE")
    assert (code, record["status"], record["check"]["wrong"]) == (1, "failed", 256)
    code, records, _ = started("gpu_launch", DOUBLE_GPUS="0")
    assert code == 2 and {record["status"] for record in records} == {"skipped"}
    assert all("CUDA" in record["reason"] for record in records)
    code, (record,), errors = started("gpu_gemm", "m=64", "n=64", "k=64", DOUBLE_MEMORY="20000")
    assert (code, record["status"]) == (1, "failed") and "Traceback" not in errors
    assert "16.00 KiB " in record["reason"] and " 3.53 KiB of 19.53 KiB " in record["reason"]


def test_this_machine_says_what_it_lacks(collbench: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Whatever that is: CuPy, its compiler, a driver, a GPU."""
    reason = workloads.missing("gpu_copy")
    listed = collbench("suite").stdout
    assert "gpu_copy" in listed
    assert reason is None or reason in listed
    if importlib.util.find_spec("cupy") is None:
        assert reason is not None and to_install("cuda12") in reason


def test_what_cupy_is_comes_from_a_process_that_tried_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    answers = {
        'print(\'{"version": "14.2.0", "path": "/c"}\')': ("14.2.0", None),
        "import sys; sys.exit('stray\\nno CUDA device is visible')": (None, "no CUDA device is visible"),
        "print('[]')": (None, "CuPy: "), "import sys; sys.exit(3)": (None, "CuPy: its exit code is 3")
    }  # fmt: skip
    for program, (version, reason) in answers.items():
        monkeypatch.setattr(suite, "started", lambda *words, program=program: (sys.executable, "-c", program))
        software.describe.cache_clear()
        library, missing = suite.CUPY.library(), suite.CUPY.missing()
        assert (library.version if library else None) == version
        assert missing is None if reason is None else str(missing).startswith(reason)
    software.describe.cache_clear()


def test_flags_are_those_of_the_program() -> None:
    (case,) = program_cases(Plan(benchmarks=({"name": "gpu_histogram", "size": "64", "bins": 64},)), 1)
    argv = workloads.get("gpu_histogram").argv(case.case, 7)
    assert argv[1:] == ("-m", "collbench.workloads.gpu.suite", "histogram", "--bins", "64", "--size", "64", "--times",
                        "7")  # fmt: skip


PAPER = load_launch_plan(ROOT / "launch" / "xu2017-gpu.toml")


def test_plans_for_a_gpu() -> None:
    """That of the paper has its sizes, and is refused without a GPU, or skips all; affinity is that of the GPU."""
    with pytest.raises(PlanError, match="device gpu"):
        expand(PAPER, lambda engine: machine(1, 4))
    expanded = expand(msgspec.structs.replace(PAPER, unusable="skip"), lambda engine: machine(1, 4))
    assert all("GPU" in placement.note and not placement.gpus for placement in expanded.placements.values())
    assert [(cell.policy, cell.image) for cell in expanded.cells] == [("host", "openmpi"), ("multi", "openmpi")]
    cases = {identity for cases in expanded.expected.values() for identity in cases}
    work = {(case.workload, measure.work(case).amount)
            for case in cases for measure in workloads.get(case.workload).measures}  # fmt: skip
    assert work >= {("gpu_gemm", 2.0 * 23040 * 17280 * 11520), ("gpu_convolution", 18432**2),
                    ("gpu_histogram", 67108864)}  # fmt: skip
    assert len({case["variant"] for case in cases if case.workload == "gpu_transpose"}) == 8
    placements = expand(PAPER, lambda engine: with_gpus(1, 4, 1)).placements
    assert [(len(placement.gpus), placement.note) for placement in placements.values()] == [(1, ""), (1, "")]
    plan = load_launch_plan(ROOT / "launch" / "gpu-affinity.toml")
    placements = expand(plan, lambda engine: with_gpus(2, 4, 2)).placements
    cores = {cell.affinity: [slot.nodes for slot in placement.slots] for cell, placement in placements.items()}
    assert cores["near"] != cores["far"]


@pytest.mark.parametrize(
    "change", [{"unusable": "refuse"}, {"collectives": ("allreduce",), "image_backends": {"openmpi": ("nccl",)}}]
)
def test_what_may_not_be_skipped_needs_a_gpu(change: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=r": device gpu: 1 "):
        expand(msgspec.structs.replace(PAPER, **change), lambda engine: machine(1, 4))


# Which GPU is opened, and how a program ends -------------------------------------------------------------------------


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device is the word that names it."""
    for name, stand_in in (("missing", lambda: None), ("visible", lambda: ("GPU-0", "GPU-1")), ("CupyDevice", str)):
        monkeypatch.setattr(cupy_device, name, stand_in)
    monkeypatch.setattr(device, "CupyCompute", lambda device: f"compute on {device}")
    monkeypatch.delenv(world.GPU, raising=False)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("planned", "gpu"), [(None, "GPU-0"), ("", "GPU-0"), ("GPU-1", "GPU-1")])
def test_the_first_gpu_or_the_one_that_was_planned(monkeypatch: pytest.MonkeyPatch, planned: str | None,
                                                   gpu: str) -> None:  # fmt: skip
    if planned is not None:
        monkeypatch.setenv(world.GPU, planned)
    assert device.opened() == OpenGpu(gpu, f"compute on {gpu}")  # type: ignore[arg-type]
    monkeypatch.setenv(world.GPU, "GPU-7")
    with pytest.raises(BackendUnavailable, match=r"GPU-7 .* GPU-0, GPU-1$"):
        device.opened()


#: How a program ends: its exit code.
ENDS: dict[Exception | None, int] = {
    BackendUnavailable("there is no cuBLAS"): 77, Unsupported("it cannot be captured"): 77,
    MemoryError("3 are free"): 1, LibraryError("the library returned error 1"): 1, None: 0,
}  # fmt: skip


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("error", ENDS)
def test_a_program_prints_its_result_or_why_there_is_none_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    def run() -> dict[str, Any]:
        gpu = device.opened()
        if error is not None:
            raise error
        return {"on": gpu.device}

    assert device.printed(run) == ENDS[error]
    assert capsys.readouterr() == (("", f"{error}\n") if error else ('{"on": "GPU-0"}\n', ""))
    monkeypatch.setattr(cupy_device, "missing", lambda: "no driver is loaded")
    for program in (run, device.described):
        assert device.printed(program) == 77
        assert capsys.readouterr() == ("", "no driver is loaded\n")


# CuPy ----------------------------------------------------------------------------------------------------------------

Calls = list[tuple[Any, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What is asked of a CuPy that does nothing."""
    made: Calls = []

    def record(name: str) -> Any:
        return lambda *words: made.append((name, *words))

    def raw_module(code: str, options: tuple[str, ...]) -> Any:
        made.append(("module", code, options))
        return SimpleNamespace(get_function=lambda name: SimpleNamespace(kernel=SimpleNamespace(ptr=0xF0)))

    cuda, cupy = ModuleType("cupy.cuda"), ModuleType("cupy")
    vars(cuda).update(
        ExternalStream=lambda pointer: SimpleNamespace(use=lambda: made.append(("stream", pointer))),
        driver=SimpleNamespace(launchKernel=record("launch")), nvrtc=SimpleNamespace(getVersion=lambda: (12, 9)),
        cublas=SimpleNamespace(create=lambda: 7, setMathMode=record("math"), sgemm=record("sgemm")),
    )  # fmt: skip
    cupy.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    vars(cupy).update(cuda=cuda, RawModule=raw_module, __version__="14.2.0", __file__="/cupy/__init__.py")
    for name, module in (("cupy", cupy), ("cupy.cuda", cuda)):
        monkeypatch.setitem(sys.modules, name, module)
    library = SimpleNamespace(native=lambda call, explain: Native((1, *call.arguments), explain))
    monkeypatch.setattr(cupy_device, "driver_library", lambda: library)
    return made


def words_at(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def test_a_launch_has_the_words_of_cu_launch_kernel_in_both_forms(calls: Calls) -> None:
    device = DoubleDevice("GPU-0")
    memory = device.allocate(64)
    compute = CupyCompute(device)
    stage = compute.compile("source", {"BINS": 64}).launch("count", Grid((3, 5), (32, 8)), memory, 17)
    assert calls == [("stream", device.stream), ("module", "source", ("-std=c++14", "-DBINS=64"))]
    assert stage.native is not None
    (native,) = stage.native
    _, function, *shape, shared, stream, parameters, extra = native.words
    assert (function, shape, shared, stream, extra) == (0xF0, [3, 5, 1, 32, 8, 1], 0, device.stream, 0)
    pointers = words_at(parameters, 2)
    assert [words_at(pointer, 1)[0] for pointer in pointers] == [memory.address, 17]
    stage.python()
    assert calls[-1] == ("launch", *native.words[1:])


def test_the_product_is_that_of_the_transposed_matrices_without_tf32(calls: Calls) -> None:
    device = DoubleDevice("GPU-0")
    a, b, c = (device.allocate(64) for _ in range(3))
    stage = CupyCompute(device).sgemm(2, 3, 4, a, b, c)
    assert stage.native is None
    stage.python()
    assert calls[1] == ("math", 7, 0)
    name, handle, no, also_no, m, n, k, one, first, lda, second, ldb, zero, result, ldc = calls[-1]
    assert (name, handle, no, also_no, m, n, k) == ("sgemm", 7, 0, 0, 3, 2, 4)
    assert (first, lda, second, ldb, result, ldc) == (b.address, 3, a.address, 4, c.address, 3)
    scale = [float(np.ctypeslib.as_array((ctypes.c_float * 1).from_address(at))[0]) for at in (one, zero)]
    assert scale == [1.0, 0.0]


@pytest.mark.parametrize(("library", "function"), [("nvrtc", "getVersion"), ("cublas", "create")])
def test_a_library_that_cannot_be_loaded_is_named(calls: Calls, library: str, function: str) -> None:
    error = RuntimeError(f"CuPy failed to load lib{library}.so.12")
    setattr(getattr(sys.modules["cupy.cuda"], library), function, Mock(side_effect=error))
    compute, memory = CupyCompute(DoubleDevice("GPU-0")), SimpleNamespace(address=0)
    assert compute.described() == {"version": "14.2.0", "path": "/cupy/__init__.py"}
    with pytest.raises(BackendUnavailable, match=rf"lib{library}\.so\.12"):
        compute.compile("", {}) if library == "nvrtc" else compute.sgemm(1, 1, 1, memory, memory, memory)


def test_the_driver_explains_its_codes() -> None:
    words = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))

    def get_error_string(code: int, into: Any) -> int:
        into[0] = b"invalid argument"
        return 0

    library = SimpleNamespace(handle=SimpleNamespace(cuGetErrorString=words(get_error_string)))
    assert cupy_device.explained(library, 1) == "invalid argument"  # type: ignore[arg-type]
