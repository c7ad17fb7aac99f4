"""What DeepBench's programs compute and check, by torch on the processor: small problems, and spoilt results."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT

from collbench.workloads.dl import deepbench_programs as programs
from collbench.workloads.dl.deepbench import Conv, Gemm, Rnn
from collbench.workloads.dl.deepbench_programs import Pass, TorchMachine
from collbench.workloads.protocol import Unusable

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: Sides, strides and padding that differ; as many images as DeepBench's smallest.
CONV = Conv(w=9, h=7, c=3, n=4, k=5, s=3, r=2, stride=2, pad=1)
#: The last one has a single step, so that the gradient of the weights of its state, which is 0, is 0.
RNNS = (*(Rnn(cell, h=24, n=3, t=6) for cell in ("vanilla", "lstm", "gru")), Rnn("gru", h=24, n=3, t=1))
PASSES = ("forward", "backward_data", "backward_weights")
TIMES = 2


@pytest.fixture(scope="module")
def torch() -> Any:
    try:
        import torch
    except ImportError:
        skip_or_fail("torch", "torch is not installed in this environment")
    torch.manual_seed(1)
    return torch


def passes_of(machine: TorchMachine, row: Conv | Rnn) -> dict[str, Pass]:
    if isinstance(row, Conv):
        return programs.conv_passes(machine, row)
    return programs.rnn_passes(machine, row, programs.layer_of(machine, row))


def spoilt(one: Pass, spoil: Callable[[Any], None]) -> Pass:
    """Its results are changed before they are compared."""

    def call(given: Any) -> Any:
        results = [result.clone() for result in one.call(given)]
        spoil(results)
        return results

    return replace(one, call=call)


def last(value: float) -> Callable[[Any], None]:
    """The last element of the last result."""

    def spoil(results: Any) -> None:
        results[-1].view(-1)[-1] += value

    return spoil


SPOILS = {
    "an element": last(1.0), "no number": last(float("nan")), "infinite": last(float("inf")),
    "nothing computed": lambda results: [result.zero_() for result in results],
    "one of the batch": lambda results: results[0].select(min(1, results[0].dim() - 1), 0).mul_(1.01),
}  # fmt: skip


@pytest.mark.parametrize("row", [CONV, *RNNS], ids=lambda row: row.name)
def test_right_results_are_right_and_each_spoilt_one_is_counted(torch: Any, row: Conv | Rnn) -> None:
    machine = TorchMachine(torch)
    passes = passes_of(machine, row)
    result = machine.sampled(passes, TIMES)
    assert (result["wrong"], tuple(result["ns"])) == (0, PASSES)
    assert all(len(taken) == TIMES and min(taken) > 0 for taken in result["ns"].values())
    assert 0 <= result["figures"]["relative error"] < 1e-4
    for name, one in passes.items():
        for what, spoil in SPOILS.items():
            found = machine.sampled(passes | {name: spoilt(one, spoil)}, TIMES)
            assert found["wrong"] == TIMES, (name, what)


def test_a_term_that_is_left_out_is_found(torch: Any) -> None:
    """Of the 288 products of a value, in one channel of the smallest convolution that has so many."""
    machine, row = TorchMachine(torch), Conv(w=6, h=6, c=32, n=2, k=4, s=3, r=3, stride=1, pad=1)
    passes = passes_of(machine, row)
    assert machine.sampled(passes, 1)["wrong"] == 0
    error = passes["forward"].error(passes["forward"].call(None))
    assert error < machine.tolerance(row.c * row.r * row.s) < 1 / 288


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("row", [CONV, *RNNS], ids=lambda row: row.name)
def test_shorter_types_are_compared_by_their_rounding(torch: Any, row: Conv | Rnn, precision: str) -> None:
    machine = TorchMachine(torch, precision=precision)
    try:
        passes = passes_of(machine, row)
        result = machine.sampled(passes, 1)
    except RuntimeError as error:
        pytest.skip(f"{precision}: {error}")
    assert result["wrong"] == 0, result
    assert machine.sampled({"forward": spoilt(passes["forward"], last(1.0))}, 1)["wrong"] == 1


def test_a_longer_gru_has_more_operators_and_all_are_counted(torch: Any) -> None:
    machine, counts = TorchMachine(torch), list[int]()
    for row in (Rnn("gru", 8, 2, 5), Rnn("gru", 8, 2, 10)):
        layer = programs.layer_of(machine, row)
        x = machine.uniform(row.t, row.n, row.h)
        counts.append(programs.operations(machine, lambda layer=layer, x=x: layer(x))["operators"])  # type: ignore[misc]
    assert counts[0] > 5 * 5 and counts[1] - counts[0] > 5 * 5
    x = machine.uniform(4, 4)
    assert programs.operations(machine, lambda: x + x)["operators"] == 1


def test_on_a_gpu_what_it_executes_is_counted() -> None:
    """Kernels and copies, and not the operators of the processor that issue them."""
    seen = [SimpleNamespace(device_type=kind) for kind in ("CPU", "CUDA", "CPU", "CUDA", "CUDA")]
    done = list[str]()

    class Profile:
        def __init__(self, activities: list[str]) -> None:
            done.extend(activities)

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *_: object) -> None:
            done.append("left")

        def events(self) -> Iterable[Any]:
            return seen

    profiler = SimpleNamespace(profile=Profile, ProfilerActivity=SimpleNamespace(CPU="CPU", CUDA="CUDA"))
    fake = SimpleNamespace(
        profiler=profiler, autograd=SimpleNamespace(DeviceType=SimpleNamespace(CUDA="CUDA")),
        cuda=SimpleNamespace(synchronize=lambda: done.append("waited")),
    )  # fmt: skip
    assert programs.operations(TorchMachine(fake, "cuda"), lambda: done.append("called")) == {"kernels": 3}
    assert done == ["CUDA", "called", "waited", "left"]


class Unjudged(Pass):
    """Its results are right, whatever they are."""

    def error(self, results: Any) -> float:
        return 0.0


def test_a_sample_ends_when_the_gpu_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before the call is not timed; the GPU is waited for before it, and within the time after it."""
    done, clock = list[str](), iter((100, 350))

    def read() -> int:
        done.append("read")
        return next(clock)

    fake = SimpleNamespace(
        cuda=SimpleNamespace(synchronize=lambda: done.append("waited")),
        finfo=lambda dtype: SimpleNamespace(eps=1e-7), float32="float32",
    )  # fmt: skip

    def told(what: str) -> str:
        done.append(what)
        return what

    one = Unjudged(lambda given: told("called"), (), 1, None, lambda: told("prepared"))
    monkeypatch.setattr("time.perf_counter_ns", read)
    assert TorchMachine(fake, "cuda").sampled({"forward": one}, 1)["ns"] == {"forward": [250]}
    assert done == ["prepared", "waited", "read", "called", "waited", "read"]


def test_only_the_gradient_that_is_timed_is_computed(torch: Any) -> None:
    machine = TorchMachine(torch)
    height, width = CONV.out
    x, w = machine.uniform(CONV.n, CONV.c, CONV.h, CONV.w), machine.uniform(CONV.k, CONV.c, CONV.r, CONV.s)
    g = machine.uniform(CONV.n, CONV.k, height, width)
    for data in (True, False):
        of_images, of_filters, of_bias = programs.backward(machine, CONV, x, w, g, data=data)
        assert ((of_images is not None), (of_filters is not None), of_bias) == (data, not data, None)


# gemm ----------------------------------------------------------------------------------------------------------------


class Spoiling(programs.OfTorch):
    """Changes C after it was computed; `skip` computes nothing."""

    def __init__(self, machine: TorchMachine, value: float, skip: bool = False) -> None:
        super().__init__(machine)
        self._value, self._skip = value, skip

    def multiply(self, a: Any, b: Any, c: Any, forms: str) -> int:
        taken = 1 if self._skip else super().multiply(a, b, c, forms)
        c[-1, -1] += self._value
        return taken


@pytest.mark.parametrize("forms", ["NN", "TN", "NT", "TT"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_products_are_exact_in_every_form(torch: Any, forms: str, precision: str) -> None:
    row = Gemm(17, 5, 300, forms)
    result = programs.products(programs.OfTorch(TorchMachine(torch, precision=precision)), row, precision, 3)
    assert (result["wrong"], len(result["ns"]["multiply"])) == (0, 3)


def test_a_row_with_a_wrong_element_is_counted_in_each_product(torch: Any) -> None:
    row, machine = Gemm(6, 4, 9, "NN"), TorchMachine(torch)
    assert programs.products(Spoiling(machine, 1.0), row, "float32", 3)["wrong"] == 3
    assert programs.products(Spoiling(machine, float("nan")), row, "float32", 3)["wrong"] == 3
    assert programs.products(Spoiling(machine, 0.0, skip=True), row, "float32", 1)["wrong"] > 3


def test_matrices_are_column_major_and_sums_stay_exact(torch: Any) -> None:
    library = programs.OfTorch(TorchMachine(torch))
    assert library.matrix(np.ones((3, 5), np.int8)).stride() == (1, 3)
    dense = programs.signs(np.random.default_rng(1), (100, 100), 1.0)
    sparse = programs.signs(np.random.default_rng(1), (100, 100), 0.25)
    assert set(np.unique(dense)) == {-1, 1} and set(np.unique(sparse)) == {-1, 0, 1}
    assert 0.2 < np.abs(sparse).mean() < 0.3


def test_cupy_is_given_the_same_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CuPy in NumPy: alpha and beta are 1, and the stream is waited for."""
    given, waited = list[tuple[str, str, float, float]](), list[bool]()

    def gemm(form_a: str, form_b: str, a: Any, b: Any, out: Any, alpha: float, beta: float) -> None:
        given.append((form_a, form_b, alpha, beta))
        assert a.flags.f_contiguous and b.flags.f_contiguous and out.flags.f_contiguous
        out[:] = (a.T if form_a == "T" else a) @ (b.T if form_b == "T" else b) + out

    cublas: Any = ModuleType("cupy.cublas")
    cublas.gemm = gemm
    stream = SimpleNamespace(synchronize=lambda: waited.append(True))
    runtime = SimpleNamespace(getDeviceProperties=lambda device: {"name": b"made up"})
    cupy: Any = ModuleType("cupy")
    cupy.__dict__.update(
        asarray=np.asarray, asnumpy=np.asarray, cublas=cublas, __version__="14",
        cuda=SimpleNamespace(get_current_stream=lambda: stream, runtime=runtime),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cublas", cublas)
    library = programs.OfCupy(cupy)
    for forms in ("NN", "TN", "NT"):
        assert programs.products(library, Gemm(7, 3, 11, forms), "float32", 2)["wrong"] == 0
    assert given[-1] == ("N", "T", 1.0, 1.0) and len(waited) == 12
    assert library.described() == "CuPy 14, made up"


# Programs ------------------------------------------------------------------------------------------------------------


PROGRAMS = "collbench.workloads.dl.deepbench_programs"


def started(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", PROGRAMS, name, "--times", "2", "--threads", "1", *words],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "problem", "figures"),
    [
        ("gemm", "33x4x20_TN", set()),
        ("conv", CONV.name, {"relative error"}),
        ("rnn", RNNS[2].name, {"relative error", "operators"}),
    ],
)
def test_the_programs_print_what_they_measured(torch: Any, name: str, problem: str, figures: set[str]) -> None:
    done = started(name, "--problem", problem)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["wrong"], set(result["figures"])) == (0, figures)
    assert result["notes"][0].startswith("torch 2") and result["notes"][0].endswith("1 thread")


def test_without_a_gpu_a_case_is_skipped_with_the_reason(torch: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = started("conv", "--problem", CONV.name, "--device", "cuda")
    assert done.returncode == 77
    assert done.stderr.splitlines()[-1].startswith("device=cuda: torch ")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Unusable("no such thing"), 77, "no such thing"),
        (RuntimeError('"conv" not implemented for \'Half\'\nmore'), 77, "float16 on cpu: \"conv\" not implemented for"),
        (NotImplementedError("no kernel"), 77, "float16 on cpu: no kernel"),
        (RuntimeError("CUDA out of memory. Tried.\nmore"), 1, "gemm1 does not fit into the memory of the GPU"),
        (MemoryError(), 1, "gemm1 does not fit into memory; use a smaller problem"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_one_line(
    error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(flags: argparse.Namespace) -> dict[str, Any]:
        raise error

    with pytest.raises(SystemExit) as ended:
        programs.print_result(argparse.Namespace(problem="gemm1", precision="float16", device="cpu"), run)
    lines = capsys.readouterr().err.splitlines()
    assert (ended.value.code, len(lines)) == (code, 1) and lines[0].startswith(said)


def test_other_errors_keep_their_traceback() -> None:
    def run(flags: argparse.Namespace) -> dict[str, Any]:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        programs.print_result(argparse.Namespace(problem="gemm1", precision="float32", device="cpu"), run)
