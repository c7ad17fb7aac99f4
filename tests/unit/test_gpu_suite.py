"""Benchmarks of suite `gpu` on the made-up device: their results are right, and each check notices a wrong one."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.double.device import DoubleDevice
from tests.double.kernels import DoubleCompute
from tests.mpi.jobs import skip_or_fail

from collbench.collectives.row import Array
from collbench.timing.call import Stage
from collbench.workloads import get
from collbench.workloads.gpu import device, kernels, transfers
from collbench.workloads.gpu.device import OpenGpu
from collbench.workloads.gpu.suite import VARIANTS

pytestmark = pytest.mark.slow  # most compile kernels

Run = Callable[[OpenGpu, argparse.Namespace], dict[str, Any]]

RUNS: dict[str, tuple[Run, dict[str, Any]]] = {
    "copy": (transfers.copy, {"size": 5000, "memory": "pinned"}),
    "copy pageable": (transfers.copy, {"size": 1, "memory": "pageable"}),
    "convolution": (kernels.convolution, {"side": 70}),
    "convolution of one pixel": (kernels.convolution, {"side": 1}),
    "gemm": (kernels.gemm, {"m": 7, "n": 9, "k": 11}),
    "gemm of one product": (kernels.gemm, {"m": 1, "n": 1, "k": 1}),
    "histogram": (kernels.histogram, {"size": 4096, "bins": 64}),
    "histogram 256": (kernels.histogram, {"size": 4, "bins": 256}),
    **{f"transpose {variant}": (kernels.transpose, {"side": 48, "variant": variant}) for variant in VARIANTS},
    "launch": (transfers.launch, {"burst": 200}),
}  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is compiled for the host, once."""
    if shutil.which("g++") is None:
        skip_or_fail("cuda", "there is no g++, which compiles CUDA kernels for the host")
    return tmp_path_factory.mktemp("kernels")


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


@pytest.mark.parametrize("name", RUNS)
def test_results_are_right_and_every_measure_has_its_samples(result: Result, name: str) -> None:
    found = result(name)
    assert found["wrong"] == 0
    measures = [measure.name for measure in get(f"gpu_{name.split()[0]}").measures]
    assert {measure: len(taken) for measure, taken in found["ns"].items()} == dict.fromkeys(measures, 3)
    assert min(min(taken) for taken in found["ns"].values()) > 0
    assert [figure for figure in found["figures"] if not figure.endswith("device_ns")] == []
    assert found["notes"][0] == "Double GPU-0, driver 0"
    assert [note for note in found["notes"] if note.startswith("driver python")] == (
        ["driver python: cuBLAS takes more arguments than the loop in C passes"] if name.startswith("gemm") else []
    )


@pytest.mark.parametrize("name", ["copy", "convolution", "histogram", "transpose optimized", "launch"])
def test_in_python_they_are_right_too(result: Result, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "why_not_native", lambda *_: "it was forbidden")
    found = result(name)
    assert found["wrong"] == 0
    assert found["notes"][1] == "driver python: it was forbidden"


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("convolution", ("{3, 1, 4,", "{3, 1, 5,")),
        ("convolution", ("RADIUS - tap][", "RADIUS + tap][")),
        ("convolution", ("threadIdx.x + RADIUS - tap", "threadIdx.x + RADIUS + tap")),
        ("convolution", ("if (column >= side || row >= side) return", "if (column >= side - 1 || row >= side) return")),
        ("convolution", ("__syncthreads();", "")),
        (
            "histogram",
            ("partial[blockIdx.x * BINS + bin] = sum", "partial[blockIdx.x * BINS + bin] = sum + (bin == 63)"),
        ),
        ("histogram", ("counts[i / BINS][i % BINS] = 0", "counts[i / BINS][i % BINS] = 1")),
        ("histogram", ("shift < 32", "shift < 24")),
        ("histogram", ("        __syncthreads();\n        if", "        if")),
        ("launch", ("atomicAdd(counter, 1u)", "atomicAdd(counter, 2u)")),
        ("launch", ("threadIdx.x == 0) atomicAdd", "threadIdx.x == 1) atomicAdd")),
        ("transpose naive", ("ROW(blockIdx.y) + i)] = in", "ROW(blockIdx.x) + i)] = in")),
        ("transpose coalesced", ("tile[threadIdx.x][threadIdx.y + i]", "tile[threadIdx.y + i][threadIdx.x]")),
        ("transpose optimized", ("__syncthreads();", "")),
        ("transpose diagonal", ("(blockIdx.x + blockIdx.y) % gridDim.x", "blockIdx.x")),
        ("transpose simple_copy", ("i < TILE", "i < TILE - ROWS")),
        ("transpose coarse_grained", ("ROW(blockIdx.x)", "ROW(blockIdx.y)")),
        ("transpose fine_grained", ("tile[threadIdx.x][threadIdx.y + i]", "tile[threadIdx.y + i][threadIdx.x]")),
    ],
)
def test_a_wrong_kernel_is_noticed(result: Result, name: str, edit: tuple[str, str]) -> None:
    assert result(name, edit)["wrong"] > 0


@pytest.mark.parametrize("name", ["coarse_grained", "fine_grained"])
def test_a_whole_transpose_is_not_taken_for_half_of_one(result: Result, name: str) -> None:
    """With a copy as the other half, both together would still transpose."""
    other = kernels.OTHER_HALF[name]
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


@pytest.mark.parametrize("compute", [Tf32, Idle, Transposed])
def test_a_wrong_product_is_noticed(result: Result, compute: type[DoubleCompute]) -> None:
    """Also one whose factors were rounded to TF32."""
    assert result("gemm", compute=compute, m=8, n=8, k=8)["wrong"] > 0


def test_factors_are_whole_numbers_whose_sums_are_exact() -> None:
    for k in (1, 70_000, 500_000, kernels.MOST_PRODUCTS):
        most = kernels.largest(k)
        assert 1 <= most <= 15
        assert k * most**2 + kernels.ODD * most < 2**24


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize(("kind", "wrong"), [(1, "h2d"), (2, "d2h"), (3, "d2d")])
def test_a_copy_that_is_a_byte_short_is_noticed(
    result: Result, kind: int, wrong: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = DoubleDevice.copy

    def short(self: DoubleDevice, target: int, source: int, size: int, way: int) -> None:
        whole(self, target, source, size - (way == kind), way)

    monkeypatch.setattr(DoubleDevice, "copy", short)
    assert result("copy", memory=memory)["wrong"] == 1


def test_a_graph_with_too_few_launches_is_noticed(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = DoubleDevice.capture
    monkeypatch.setattr(DoubleDevice, "capture", lambda self, issue, times: capture(self, issue, times - 1))
    assert result("launch")["wrong"] == 2


def test_samples_begin_with_an_empty_stream_and_issue_does_not_wait(result: Result) -> None:
    """What is queued when a sample of `issue` ends is done before the next begins, outside of its time."""
    queued: list[int] = []

    class Watched(DoubleCompute):
        def launch(self, function: int, *words: int) -> None:
            queued.append(len(self.device.queue))
            super().launch(function, *words)

    result("launch", compute=Watched, burst=200)
    assert max(queued) == 199


def test_rows_of_an_image_are_the_same_however_they_are_asked_for() -> None:
    whole = kernels.image(130, 0, 130)
    assert (kernels.image(130, 50, 70) == whole[50:70]).all()
    assert not kernels.image(130, -8, 0).any()
    assert not kernels.image(130, 130, 140).any()
    assert [last - first for first, last in kernels.checked_rows(18432)] == [16, 32, 16]


class OnlyInPython(DoubleCompute):
    """What the loop in C calls does nothing; the same calls from Python work."""

    def __init__(self, device: DoubleDevice, folder: Path, edit: Callable[[str], str]) -> None:
        super().__init__(device, folder, edit)
        device.functions.add("cuLaunchKernel", lambda *words: None, 11)
        device.functions.add("cudaMemcpyAsync", lambda *words: None, 5)


@pytest.mark.parametrize("name", ["copy", "convolution", "histogram", "transpose simple_copy", "launch"])
def test_what_is_checked_is_what_was_timed(result: Result, name: str) -> None:
    """Not what was done before, without a clock."""
    assert result(name, compute=OnlyInPython)["wrong"] > 0


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


def test_bytes_are_counted_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(1000, dtype=np.uint16).astype(np.uint8)
    whole = kernels.counted(values, 64)
    monkeypatch.setattr(kernels, "AT_ONCE", 7)
    assert (kernels.counted(values, 64) == whole).all()
    assert whole.sum() == 1000 and whole[0] == np.count_nonzero(values < 4)


@pytest.mark.parametrize("part", [1, 200, 1000])
@pytest.mark.parametrize("name", ["gemm", "convolution", "transpose fine_grained"])
def test_arrays_are_copied_by_parts(result: Result, name: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to a row at a time; what is checked does not depend on it."""
    monkeypatch.setattr(device, "PART", part)
    assert result(name)["wrong"] == 0
    if name == "gemm":
        assert result(name, compute=Tf32)["wrong"] > 0


def test_what_a_case_is_refused_for_is_what_the_program_needs() -> None:
    assert kernels.largest(kernels.MOST_PRODUCTS) >= 1
