"""DeepBench: its tables and cases, what its programs compute and check by torch on the processor, spoilt results."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT

from collbench import workloads
from collbench.run.cases import program_cases
from collbench.schema.axes import sizes_in_bytes
from collbench.schema.case import Case
from collbench.schema.plan import Plan, load_launch_plan
from collbench.workloads.dl import deepbench_programs as programs
from collbench.workloads.dl.deepbench_programs import Conv, Gemm, Pass, Rnn, TorchMachine, problem, problems, table
from collbench.workloads.protocol import Unusable

LAUNCH = Path(__file__).parents[2] / "launch"
NAMES = ("deepbench_conv", "deepbench_gemm", "deepbench_rnn")
TERA, GIGA = 1e12, 1e9


def cases_of(name: str, **values: Any) -> list[Case]:
    return [planned.case for planned in program_cases(Plan(benchmarks=({"name": name, **values},)), 1)]


def groups_of(name: str) -> dict[str, tuple[str, ...]]:
    (axis,) = (axis for axis in workloads.get(name).axes if axis.name == "problem")
    assert axis.plan_key is not None
    return dict(axis.plan_key.groups)


# Tables --------------------------------------------------------------------------------------------------------------


def test_the_tables_have_deepbenchs_rows() -> None:
    assert {name: len(rows) for name, rows in table().items()} == {"gemm": 160, "conv": 94, "rnn": 53, "all_reduce": 7}
    assert (len(problems(Gemm)), len(problems(Conv)), len(problems(Rnn))) == (160, 90, 53)
    assert len({str(row) for row in table()["conv"]}) == 90
    assert Counter(row.cell for row in problems(Rnn).values()) == {"vanilla": 12, "lstm": 22, "gru": 19}


def test_the_tables_add_up_to_deepbenchs_flop() -> None:
    gemm = [row.flop for row in problems(Gemm).values()]
    small = [flop for flop in gemm if flop <= 2 * GIGA]
    assert round(sum(gemm) / TERA, 1) == 26.7
    assert (len(small), round(sum(small) / GIGA)) == (68, 41)
    assert int(sum(Conv(*row).flop for row in table()["conv"]) / GIGA) == 562


def test_the_result_of_a_convolution_is_the_next_ones_image() -> None:
    """The two layers of a network for speech."""
    first = problem(Conv, "700x161x1_n4_k32_20x5_s2_p0")
    assert first.out == (79, 341)
    assert problem(Conv, "341x79x32_n4_k32_10x5_s2_p0") in problems(Conv).values()
    assert Conv(7, 7, 512, 8, 512, 3, 3, 1, 1).out == (7, 7)
    assert Conv(3, 2, 1, 1, 1, 3, 2, 1, 0).flop == 2 * 3 * 2


def test_flop_of_a_layer_are_those_of_both_products() -> None:
    """One step: the input and the state, each times the weights of every gate."""
    assert [Rnn(cell, 10, 3, 1).flop for cell in ("vanilla", "lstm", "gru")] == [
        gates * 2 * (2 * 10 * 10 * 3) for gates in (1, 4, 3)]  # fmt: skip


@pytest.mark.parametrize("kind", [Gemm, Conv, Rnn])
def test_a_name_says_its_problem(kind: type[Any]) -> None:
    for name, row in problems(kind).items():
        assert problem(kind, name) == row
        assert row.name == name
    for wrong in ("", "x", f"{name}_", f" {name}"):
        with pytest.raises(ValueError, match=re.escape(repr(wrong))):
            problem(kind, wrong)


# Benchmarks ----------------------------------------------------------------------------------------------------------


def test_they_are_the_suite_deepbench() -> None:
    assert workloads.suites()["deepbench"] == NAMES
    measures = {name: [measure.name for measure in workloads.get(name).measures] for name in NAMES}
    passes = ["forward", "backward_data", "backward_weights"]
    assert measures == {"deepbench_gemm": ["multiply"], "deepbench_conv": passes, "deepbench_rnn": passes}


@pytest.mark.parametrize(("name", "small", "every"), [(NAMES[0], 58, 90), (NAMES[1], 68, 160), (NAMES[2], 14, 53)])
def test_groups_stand_for_many_problems(name: str, small: int, every: int) -> None:
    assert {group: len(names) for group, names in groups_of(name).items()} == {"all": every, "cpu": small}
    assert len(cases_of(name, problem="all")) == every
    small_cases = cases_of(name, problem=["cpu", groups_of(name)["cpu"][0]])
    assert len(small_cases) == small
    assert cases_of(name)[0]["problem"] in groups_of(name)["cpu"]


def test_every_cell_has_a_small_problem() -> None:
    assert {name.partition("_")[0] for name in groups_of("deepbench_rnn")["cpu"]} == {"vanilla", "lstm", "gru"}


def test_what_is_started() -> None:
    (case,) = cases_of("deepbench_gemm", problem="512x16x512_NT", threads=3, device="cuda", blas="cupy")
    _, *words = workloads.get("deepbench_gemm").argv(case, 7)
    assert words == [
        "-m", "collbench.workloads.dl.deepbench_programs", "gemm", "--problem", "512x16x512_NT",
        "--precision", "float32", "--device", "cuda", "--threads", "3", "--times", "7", "--blas", "cupy"]  # fmt: skip


def test_what_is_printed_is_read() -> None:
    row, (case,) = workloads.get("deepbench_rnn"), cases_of("deepbench_rnn")
    passes = {"forward": [1000, 2000], "backward_data": [3000, 4000], "backward_weights": [5000, 6000]}
    output = json.dumps(
        {"ns": passes, "wrong": 3, "figures": {"relative error": 1e-7, "operators": 57}, "notes": ["torch 2.13.0"]}
    )
    assert row.parse(output) == {name: pytest.approx([ns * 1e-9 for ns in taken]) for name, taken in passes.items()}
    assert (row.verify(case, output), row.notes(output)) == (3, ("torch 2.13.0",))
    assert row.figures(case, output) == {"relative error": 1e-7, "operators": 57}
    assert {measure.work(case).amount for measure in row.measures} == {4.0 * 4 * 512**2 * 16 * 25}


def test_memory_is_that_of_the_host() -> None:
    """Three matrices, and the check's integers. A GPU has its own, but products are checked on the host."""
    values: dict[str, Any] = {"problem": "1024x8x500000_NN"}
    gemm, elements = workloads.get("deepbench_gemm"), 1024 * 500_000 + 500_000 * 8 + 1024 * 8
    whole, half, gpu = (
        gemm.memory(cases_of("deepbench_gemm", **values, **more)[0])
        for more in ({}, {"precision": "float16"}, {"device": "cuda"})
    )
    assert (whole - half, gpu) == (2 * elements, whole)
    assert 5 * elements <= whole < 5.1 * elements
    for name in NAMES:
        assert all(0 < workloads.get(name).memory(case) < 2 * 2**30 for case in cases_of(name, problem="cpu"))
    for name in ("deepbench_conv", "deepbench_rnn"):
        assert workloads.get(name).memory(cases_of(name, device="cuda")[0]) == 0


# Plans ---------------------------------------------------------------------------------------------------------------


def test_the_plan_of_the_paper_has_every_small_problem_and_a_gru_through_time() -> None:
    plan = load_launch_plan(LAUNCH / "siddaramanna2018-cpu.toml")
    cases = [planned.case for planned in program_cases(plan.of_world(), 1)]
    small = {name: set(groups_of(name)["cpu"]) for name in NAMES}
    planned = {name: {case["problem"] for case in cases if case.workload == name} for name in NAMES}
    assert {name: planned[name] - small[name] for name in NAMES if planned[name] != small[name]} == {
        "deepbench_rnn": {"gru_h1536_n32_t187"}}  # fmt: skip
    assert all(small[name] <= planned[name] for name in NAMES)


def test_the_plan_of_all_reduce_has_deepbenchs_sizes() -> None:
    plan = load_launch_plan(LAUNCH / "deepbench-allreduce.toml")
    assert sizes_in_bytes(plan["sizes"]) == tuple(4 * elements for elements in table()["all_reduce"])
    assert (plan.collectives, plan["dtypes"], plan.ranks) == (("allreduce",), ("float32",), (2,))


# Programs ------------------------------------------------------------------------------------------------------------

#: Sides, strides and padding that differ; as many images as DeepBench's smallest.
CONV = Conv(w=9, h=7, c=3, n=4, k=5, s=3, r=2, stride=2, pad=1)
#: The last one has a single step, so that the gradient of the weights of its state, which is 0, is 0.
RNNS = (*(Rnn(cell, h=24, n=3, t=6) for cell in ("vanilla", "lstm", "gru")), Rnn("gru", h=24, n=3, t=1))
PASSES = ("forward", "backward_data", "backward_weights")
TIMES = 2


def with_torch(test: Any) -> Any:
    return pytest.mark.torch(pytest.mark.slow(test))


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


def spoilt(judged: Pass, spoil: Callable[[Any], None]) -> Pass:
    """Its results are changed before they are compared."""

    def call(given: Any) -> Any:
        results = [result.clone() for result in judged.call(given)]
        spoil(results)
        return results

    return replace(judged, call=call)


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


@with_torch
@pytest.mark.parametrize("row", [CONV, *RNNS], ids=lambda row: row.name)
def test_right_results_are_right_and_each_spoilt_one_is_counted(torch: Any, row: Conv | Rnn) -> None:
    machine = TorchMachine(torch)
    passes = passes_of(machine, row)
    result = machine.sampled(passes, TIMES)
    assert (result["wrong"], tuple(result["ns"])) == (0, PASSES)
    assert all(len(taken) == TIMES and min(taken) > 0 for taken in result["ns"].values())
    assert 0 <= result["figures"]["relative error"] < 1e-4
    for name, judged in passes.items():
        for what, spoil in SPOILS.items():
            result = machine.sampled(passes | {name: spoilt(judged, spoil)}, TIMES)
            assert result["wrong"] == TIMES, (name, what)


@with_torch
def test_a_term_that_is_left_out_is_found(torch: Any) -> None:
    """Of the 288 products of a value, in one channel of the smallest convolution that has so many."""
    machine, row = TorchMachine(torch), Conv(w=6, h=6, c=32, n=2, k=4, s=3, r=3, stride=1, pad=1)
    passes = passes_of(machine, row)
    assert machine.sampled(passes, 1)["wrong"] == 0
    error = passes["forward"].error(passes["forward"].call(None))
    assert error < machine.tolerance(row.c * row.r * row.s) < 1 / 288


@with_torch
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


@with_torch
def test_a_longer_gru_has_more_operators_and_all_are_counted(torch: Any) -> None:
    machine, counts = TorchMachine(torch), list[int]()
    for row in (Rnn("gru", 8, 2, 5), Rnn("gru", 8, 2, 10)):
        layer = programs.layer_of(machine, row)
        x = machine.uniform(row.t, row.n, row.h)
        counts.append(programs.operations(machine, lambda layer=layer, x=x: layer(x))["operators"])  # type: ignore[misc]
    assert counts[0] > 5 * 5 and counts[1] - counts[0] > 5 * 5
    x = machine.uniform(4, 4)
    assert programs.operations(machine, lambda: x + x)["operators"] == 1


@with_torch
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


@with_torch
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


@with_torch
def test_only_the_gradient_that_is_timed_is_computed(torch: Any) -> None:
    machine = TorchMachine(torch)
    height, width = CONV.out
    x, w = machine.uniform(CONV.n, CONV.c, CONV.h, CONV.w), machine.uniform(CONV.k, CONV.c, CONV.r, CONV.s)
    g = machine.uniform(CONV.n, CONV.k, height, width)
    for data in (True, False):
        of_images, of_filters, of_bias = programs.backward(machine, CONV, x, w, g, data=data)
        assert ((of_images is not None), (of_filters is not None), of_bias) == (data, not data, None)


# Products ------------------------------------------------------------------------------------------------------------


class Spoiling(programs.OfTorch):
    """Changes C after it was computed; `skip` computes nothing."""

    def __init__(self, machine: TorchMachine, value: float, skip: bool = False) -> None:
        super().__init__(machine)
        self._value, self._skip = value, skip

    def multiply(self, a: Any, b: Any, c: Any, forms: str) -> int:
        taken = 1 if self._skip else super().multiply(a, b, c, forms)
        c[-1, -1] += self._value
        return taken


@with_torch
@pytest.mark.parametrize("forms", ["NN", "TN", "NT", "TT"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_products_are_exact_in_every_form(torch: Any, forms: str, precision: str) -> None:
    row = Gemm(17, 5, 300, forms)
    result = programs.products(programs.OfTorch(TorchMachine(torch, precision=precision)), row, precision, 3)
    assert (result["wrong"], len(result["ns"]["multiply"])) == (0, 3)


@with_torch
def test_a_row_with_a_wrong_element_is_counted_in_each_product(torch: Any) -> None:
    row, machine = Gemm(6, 4, 9, "NN"), TorchMachine(torch)
    assert programs.products(Spoiling(machine, 1.0), row, "float32", 3)["wrong"] == 3
    assert programs.products(Spoiling(machine, float("nan")), row, "float32", 3)["wrong"] == 3
    assert programs.products(Spoiling(machine, 0.0, skip=True), row, "float32", 1)["wrong"] > 3


@with_torch
def test_matrices_are_column_major_and_sums_stay_exact(torch: Any) -> None:
    library = programs.OfTorch(TorchMachine(torch))
    assert library.matrix(np.ones((3, 5), np.int8)).stride() == (1, 3)
    dense = programs.signs(np.random.default_rng(1), (100, 100), 1.0)
    sparse = programs.signs(np.random.default_rng(1), (100, 100), 0.25)
    assert set(np.unique(dense)) == {-1, 1} and set(np.unique(sparse)) == {-1, 0, 1}
    assert 0.2 < np.abs(sparse).mean() < 0.3


@with_torch
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


# On the command line -------------------------------------------------------------------------------------------------


PROGRAMS = "collbench.workloads.dl.deepbench_programs"


def started(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", PROGRAMS, name, "--times", "2", "--threads", "1", *words],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


@with_torch
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


@with_torch
def test_without_a_gpu_a_case_is_skipped_with_the_reason(torch: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = started("conv", "--problem", CONV.name, "--device", "cuda")
    assert done.returncode == 77
    assert done.stderr.splitlines()[-1].startswith("device=cuda: torch ")


@with_torch
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Unusable("no such thing"), 77, "no such thing"),
        (RuntimeError('"conv" not implemented for \'Half\'\nmore'), 77, "float16 on cpu: \"conv\" "),
        (NotImplementedError("no kernel"), 77, "float16 on cpu: no kernel"),
        (RuntimeError("CUDA out of memory. Tried.\nmore"), 1, "gemm1 .* GPU"),
        (MemoryError(), 1, "gemm1 (?!.* GPU)"),
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
    assert (ended.value.code, len(lines)) == (code, 1) and re.match(said, lines[0])


@with_torch
def test_other_errors_keep_their_traceback() -> None:
    def run(flags: argparse.Namespace) -> dict[str, Any]:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        programs.print_result(argparse.Namespace(problem="gemm1", precision="float32", device="cpu"), run)
