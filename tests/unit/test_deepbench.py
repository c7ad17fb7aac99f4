"""DeepBench's tables and benchmarks: what they count, which cases there are, what is refused, and what is printed."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collbench import workloads
from collbench.errors import PlanError
from collbench.run.expand import program_cases
from collbench.schema.axes import sizes_in_bytes
from collbench.schema.case import Case
from collbench.schema.plan import Plan, load_launch_plan
from collbench.workloads.dl.deepbench import Conv, Gemm, Rnn, problem, problems, table

LAUNCH = Path(__file__).parents[2] / "launch"
NAMES = ("deepbench_conv", "deepbench_gemm", "deepbench_rnn")
TERA, GIGA = 1e12, 1e9


def cases_of(name: str, **values: Any) -> list[Case]:
    return [one.case for one in program_cases(Plan(benchmarks=({"name": name, **values},)), 1)]


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
        with pytest.raises(ValueError, match="is no problem such as"):
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


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("deepbench_gemm", {"problem": "7680x5481x2560_NN"}, "Did you mean 7680x5481x2560_NT"),
        ("deepbench_rnn", {"problem": "gru_h1536_n32_t188"}, "Did you mean gru_h1536_n32_t187"),
        ("deepbench_conv", {"precision": "float64"}, ": float32, float16, bfloat16."),
        ("deepbench_conv", {"device": "gpu"}, ": cpu, cuda."),
        ("deepbench_gemm", {"blas": "cupy"}, "CuPy computes on GPUs; use device=cuda, or blas=torch"),
        ("deepbench_gemm", {"blas": "cupy", "device": "cuda", "precision": "float16"}, "CuPy's gemm has float32"),
    ],
)
def test_what_is_refused(name: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=f"benchmark {name}") as caught:
        cases_of(name, **values)
    assert said in str(caught.value)


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


def test_torch_is_a_library_of_the_side() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    (library,) = workloads.libraries(["deepbench_conv", "deepbench_rnn", "deepbench_gemm blas=torch"])
    assert (library.name, library.used_by) == (
        "torch", ("deepbench_conv", "deepbench_rnn", "deepbench_gemm blas=torch"))  # fmt: skip
    assert library.version and library.path is not None


# Plans ---------------------------------------------------------------------------------------------------------------


def test_the_plan_of_the_paper_has_every_small_problem_and_a_gru_through_time() -> None:
    plan = load_launch_plan(LAUNCH / "siddaramanna2018-cpu.toml")
    cases = [one.case for one in program_cases(plan.of_world(), 1)]
    small = {name: set(groups_of(name)["cpu"]) for name in NAMES}
    found = {name: {case["problem"] for case in cases if case.workload == name} for name in NAMES}
    assert {name: found[name] - small[name] for name in NAMES if found[name] != small[name]} == {
        "deepbench_rnn": {"gru_h1536_n32_t187"}}  # fmt: skip
    assert all(small[name] <= found[name] for name in NAMES)


def test_the_plan_of_all_reduce_has_deepbenchs_sizes() -> None:
    plan = load_launch_plan(LAUNCH / "deepbench-allreduce.toml")
    assert sizes_in_bytes(plan["sizes"]) == tuple(4 * elements for elements in table()["all_reduce"])
    assert (plan.collectives, plan["dtypes"], plan.ranks) == (("allreduce",), ("float32",), (2,))
