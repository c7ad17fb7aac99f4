"""The command suite, and what is compared of each suite."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.unit.conftest import Collbench
from tests.unit.made_programs import PLAN, run_row
from tests.unit.made_runs import experiment, image, library, write_run
from tests.unit.made_suite import CPU, IO, Made, inside, of, recorded, write_suite

from collbench import workloads
from collbench.analysis.compare import Suite, by_suite, factors_of
from collbench.analysis.runs import Observed, observe
from collbench.cli import measure
from collbench.errors import PlanError, RequestError
from collbench.report.page.contents import sentences
from collbench.run.cases import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan, check_plan
from collbench.schema.record import Work
from collbench.workloads.program import Measure, Program, SideCommand
from collbench.workloads.software import Software


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> Plan:
    """The plan that the command line stands for."""
    plans: list[Plan] = []
    monkeypatch.setattr(measure, "carry_out", lambda plan, *_: plans.append(plan))
    done = CliRunner().invoke(measure.suite_command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (plan,) = plans
    return plan


def test_a_suite_is_its_benchmarks_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "cpu").workloads == workloads.suites()["cpu"]
    named = asked(monkeypatch, "sysbench_threads", "cpu").workloads
    assert (named[0], sorted(named)) == ("sysbench_threads", sorted(workloads.suites()["cpu"]))


def test_parameters_have_the_type_of_their_default(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = asked(monkeypatch, "sysbench_memory", "size=1M,2M", "threads=1,2", "access=read", "-n", "4")
    assert (plan.iters, plan.benchmarks) == (
        4, ({"name": "sysbench_memory", "size": ("1M", "2M"), "threads": ("1", "2"), "access": ("read",)},)
    )  # fmt: skip
    assert len(program_cases(plan, 1)) == 4
    plan = asked(monkeypatch, "sysbench_cpu")
    assert (plan.benchmarks, plan.warmup, plan.floor, plan.iters) == (({"name": "sysbench_cpu"},), 1, 3, None)


def test_more_samples_than_the_usual_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no flag that could raise the cap."""
    assert check_plan(asked(monkeypatch, "sysbench_cpu", "--floor", "20000")).cap == 20_000
    assert asked(monkeypatch, "sysbench_cpu").cap == Plan(benchmarks=("sysbench_cpu",)).cap


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("sysbench_cpo", ("'sysbench_cpo' ", " sysbench_cpu?")),
        ("threads=1", ("no benchmark ", "suites containers, cpu")),
        ("sysbench_cpu treads=1", ("treads=1: sysbench_cpu ", "'treads'", " threads?")),
        ("sysbench_cpu size=1M", ("size=1M: sysbench_cpu ", "'size'")),
        ("sysbench_cpu threads=one", ("benchmark sysbench_cpu: threads 'one': ", "default 1 ")),
        ("sysbench_cpu threads=-1", ("benchmark sysbench_cpu: threads -1: ", "at least 0.")),
        ("sysbench_memory size=1M threads=3",
         ("benchmark sysbench_memory threads=3 block=1024 access=write size=1M: ", "1024 blocks")),
        ("dd --folder /no/such", ("folder /no/such: ",)),
        ("sysbench_cpu threads=", ("benchmark sysbench_cpu: threads '': ",)),
        ("sysbench_cpu threads=4 threads=8", ("threads=8: ", "threads=4,8.")),
        ("linpack linpak.n=64", ("linpak.n=64: linpack ", "'linpak.n'", " linpack.n?")),
        ("linpack linpack.m=64", ("linpack.m=64: linpack ", "'linpack.m'", " linpack.n?")),
        ("linpack dgemm.n=64", ("dgemm.n=64: linpack ", "'dgemm.n'")),
    ],
)  # fmt: skip
def test_bad_requests_name_what_would_work(words: str, named: tuple[str, ...]) -> None:
    with pytest.raises(RequestError) as refused:
        CliRunner().invoke(measure.suite_command, words.split(), catch_exceptions=False)
    assert str(refused.value).startswith(named[0])
    assert [name for name in named if name not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("axes", "named"),
    [
        ({"threads": (-1,)}, r"sysbench_memory: threads -1: .* 0\."),
        ({"threads": (5000,)}, r"sysbench_memory: threads 5000: .* 4,096\."),
        ({"access": ("sideways",)}, r"sysbench_memory: access 'sideways': .* write, read\."),
        ({"size": "8"}, "sysbench_memory .*size=8: "),  # less than a block: it would never end
    ],
)
def test_values_out_of_range_are_refused(axes: dict[str, Any], named: str) -> None:
    with pytest.raises(PlanError, match=named):
        program_cases(Plan(benchmarks=({"name": "sysbench_memory", **axes},)), 1)


def test_what_is_missing_is_listed_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    text = CliRunner().invoke(measure.suite_command, [], catch_exceptions=False).output
    assert "no  sysbench_cpu" in text and "apt-get install sysbench" in text


def test_the_version_of_a_program_is_that_of_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bench"
    program.write_text("#!/bin/sh\necho bench 3.14.1 of today >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = Software("bench", "bench").library()
    assert found is not None and (found.name, found.version, found.path) == ("bench", "3.14.1", str(program))
    assert Software("other", "other").library() is None


def plan_of(**keys: object) -> Plan:
    return msgspec.structs.replace(PLAN, benchmarks=("stream",), **keys)


def counting(tmp_path: Path, code: int = 0) -> Program:
    """A program that counts its executions in a file, and takes as many us as it was executed before."""
    script = f"echo x >> {tmp_path}/count; wc -l < {tmp_path}/count; exit {code}"
    return Program(
        name="stream", title="", summary="", measures=(Measure("total", lambda case: 1, "events"),),
        argv=lambda case, times: ("sh", "-c", script) if times == 1 else pytest.fail(f"asked for {times}"),
        parse=lambda output: {"total": [float(output) * 1e-6]}, verify=lambda case, output: 2 if output == "9\n" else 0,
        repeated=True,
    )  # fmt: skip


def test_a_repeated_program_is_executed_once_for_each_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((record, samples),) = run_row(monkeypatch, counting(tmp_path), plan_of(iters=3, warmup=2))
    assert record.status == "ok"
    assert samples.tolist() == [[3000, 4000, 5000]]


@pytest.mark.parametrize(("budget", "cap", "taken"), [("0.000001s", 100, 4), ("30s", 6, 6)])
def test_the_budget_ends_it_between_floor_and_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, cap: int, taken: int
) -> None:
    plan = plan_of(iters=None, warmup=1, floor=4, cap=cap, budget=budget)
    ((record, samples),) = run_row(monkeypatch, counting(tmp_path), plan)
    assert (record.status, samples.shape) == ("ok", (1, taken))


def test_a_wrong_result_of_one_execution_fails_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((record, samples),) = run_row(monkeypatch, counting(tmp_path), plan_of(iters=20))
    assert (record.status, samples) == ("failed", None)
    assert record.reason is not None and "stream" in record.reason
    assert record.check is not None and record.check.wrong == 2
    ((record, _),) = run_row(monkeypatch, counting(tmp_path, code=3), plan_of(iters=20))
    assert record.reason is not None and "exit code 3" in record.reason


def test_a_figure_is_its_worst_of_all_executions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first execution has the largest."""
    program = replace(counting(tmp_path), figures=lambda case, output: {"residual": 10 - float(output)})
    ((record, _),) = run_row(monkeypatch, program, plan_of(iters=3, warmup=0))
    assert record.check is not None and record.check.figures == {"residual": 9.0}


def test_the_steps_after_the_samples_are_done_once_and_may_fail_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after(script: str) -> Program:
        step = SideCommand(("sh", "-c", script), lambda output: {"read": float(output)})
        return replace(counting(tmp_path), after=lambda case: (step,))

    ((record, _),) = run_row(monkeypatch, after(f"wc -l < {tmp_path}/count"), plan_of(iters=3, warmup=0))
    assert record.check is not None and record.check.figures == {"read": 3.0}
    ((record, _),) = run_row(monkeypatch, after("echo spoilt >&2; exit 4"), plan_of(iters=3, warmup=0))
    assert record.status == "failed" and record.reason is not None and "spoilt" in record.reason


def test_what_is_missing_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = replace(counting(tmp_path), software=(Software("no-such-program", "nothing"),))
    ((record, _),) = run_row(monkeypatch, program, plan_of())
    assert record.status == "skipped" and record.reason is not None
    assert record.reason.startswith("no-such-program ") and record.reason.endswith("apt-get install nothing")


def test_a_parameter_of_one_benchmark_counts_more_than_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = asked(monkeypatch, "linpack", "hpcg", "dgemm", "n=64", "linpack.n=500,1000", "hpcg.seconds=5")
    assert plan.benchmarks == (
        {"name": "linpack", "n": ("500", "1000")}, {"name": "hpcg", "n": ("64",), "seconds": ("5",)},
        {"name": "dgemm", "n": ("64",)},
    )  # fmt: skip


def test_a_parameter_with_several_meanings_is_said(monkeypatch: pytest.MonkeyPatch, here: Collbench) -> None:
    monkeypatch.setattr(measure, "carry_out", lambda *_: None)

    def told(*words: str) -> str:
        return here("suite", *words).err

    note = told("linpack", "hpl", "hpcg", "n=64")
    assert note.startswith("collbench: n ") and note.count("\n") == 1
    assert all(name in note for name in ("linpack, hpl: ", "hpcg: ", "linpack.n="))
    assert told("linpack", "hpl", "n=64") == told("linpack", "hpcg", "linpack.n=64") == ""


# What is compared of each suite ---------------------------------------------------------------------------------------

SUITES = {"linpack": "cpu", "dgemm": "cpu", "stream": "cpu", "sysbench_cpu": "cpu"} | dict.fromkeys(
    ("dd", "fio", "ioping"), "io"
)
DD = tuple(made for made in IO if made.case.workload == "dd")


def suites(observed: Observed, factor: str = "policy", margin: float = 0.02) -> tuple[Suite, ...]:
    return by_suite(observed, factor, SUITES, margin)


def verdicts(observed: Observed, margin: float = 0.02) -> dict[str, dict[str, int]]:
    """By suite how many cells have each verdict."""
    return {suite.name: dict(Counter(one.verdict for one in suite.comparisons))
            for suite in suites(observed, margin=margin)}  # fmt: skip


def made(path: Path, cells: tuple[Made, ...] = CPU + IO, **effects: Any) -> Observed:
    return observe(write_suite(path / "run", cells, **effects))


def of_both_sides(one: Made, inner: list[Any], launches: int = 7) -> dict[Any, list[Any]]:
    """A benchmark as it was measured on the host, with what the container has of it."""
    case = one.case.having(image="tools")
    return {case: [recorded(one, case, launch, one.seconds) for launch in range(launches)], inside(case): inner}


def test_cells_have_their_verdicts_by_suite(tmp_path: Path) -> None:
    run = made(tmp_path, slower={"dd": 1.06, "fio": 1.09, "dgemm": 0.96}, share={"ioping": 0.06, "dd": 0.01})
    assert verdicts(run) == {"cpu": {"faster": 1, "same": 6}, "io": {"slower": 6, "unclear": 2}}
    assert verdicts(run, 0.1)["io"] == {"same": 8}


def test_too_few_launches_are_unclear_and_not_the_same(tmp_path: Path) -> None:
    assert verdicts(made(tmp_path, DD, launches=5)) == {"io": {"unclear": 4}}


def test_a_training_is_decided_by_its_step_and_not_by_its_parts(tmp_path: Path) -> None:
    """Communication takes 1.46x, which a step of the same length does not show."""
    cells: dict[Any, Any] = {}
    for quantity, seconds, factor in (("step", 3.0, 1.0), ("compute", 2.0, 0.7), ("communication", 1.0, 1.46)):
        one = of("ddp", seconds, Work(amount=1, unit="steps"), network="lstm", measure=quantity)
        case = one.case.having(image="tools")
        cells[case] = [recorded(one, case, launch, seconds) for launch in range(10)]
        cells[inside(case)] = [recorded(one, inside(case), launch, seconds * factor) for launch in range(10)]
    run = observe(write_run(tmp_path / "run", cells))
    assert verdicts(run) == {"other": {"same": 1, "faster": 1, "slower": 1}}
    (line,) = sentences(suites(run), 0.02)
    assert "slower" not in line and "faster" not in line


def test_a_benchmark_of_a_suite_that_nobody_knows_comes_last(tmp_path: Path) -> None:
    run = made(tmp_path, (of("aardvark", 1.0, Work(amount=1), measure="total"), *DD))
    assert [suite.name for suite in suites(run)] == ["io", "other"]
    assert [suite.name for suite in by_suite(run, "policy", {"dd": "storages"})] == ["storages", "other"]


def test_sides_with_other_software_are_not_compared_and_stop_no_other_benchmark(tmp_path: Path) -> None:
    fio = [msgspec.structs.replace(library("fio", version), used_by=("fio",)) for version in ("3.33", "3.39")]
    sides = [image("tools", libraries=(one,)) for one in fio]
    known = experiment(["tools"], environments=(sides[0],), images=(sides[1],), launches=8)
    (suite,) = suites(observe(write_suite(tmp_path / "run", IO, experiment=known)))
    assert list(suite.compared) == ["dd", "ioping"]
    assert [(one.label, one.why) for one in suite.refused] == [("fio", "library: fio 3.33 against fio 3.39")]
    (line,) = sentences((suite,), 0.02)
    assert "fio 3.33 against fio 3.39" in line


def test_a_library_of_one_way_to_run_a_benchmark_stops_no_other_way(tmp_path: Path) -> None:
    ways = [of("linpack", 1.0, CPU[0].work, n=2000, measure="solve")._replace(
                case=Case(workload="linpack", what={"n": 2000, "measure": "solve"}, how={"blas": name}))
            for name in ("openblas", "mkl")]  # fmt: skip
    of_openblas = [msgspec.structs.replace(library("OpenBLAS", version), used_by=("linpack blas=openblas",))
                   for version in ("0.3.21", "0.3.29")]  # fmt: skip
    sides = [image("tools", libraries=(one,)) for one in of_openblas]
    known = experiment(["tools"], environments=(sides[0],), images=(sides[1],), launches=8)
    run = observe(write_suite(tmp_path / "run", tuple(ways), experiment=known))
    (suite,) = suites(run)
    assert [one.pair.base.case["blas"] for one in suite.comparisons] == ["mkl"]
    assert [one.label for one in suite.refused] == ["linpack blas openblas"]
    assert [one.why for one in suite.refused] == ["library: OpenBLAS 0.3.21 against OpenBLAS 0.3.29"]


def test_what_failed_is_not_compared_and_says_why(tmp_path: Path) -> None:
    cells = of_both_sides(CPU[2], ["residual 17.2"] * 7)
    found = suites(observe(write_run(tmp_path / "run", cells, ranks=1)))
    assert [one.verdict for one in found[0].comparisons] == ["not comparable"]
    (line,) = sentences(found, 0.02)
    assert "residual 17.2" in line


def test_of_several_reasons_the_answer_has_the_number(tmp_path: Path) -> None:
    """The sections of the benchmarks have each in full."""
    cells = of_both_sides(CPU[0], ["reason 0"] * 7) | of_both_sides(CPU[2], ["reason 1"] * 7)
    (line,) = sentences(suites(observe(write_run(tmp_path / "run", cells, ranks=1))), 0.02)
    assert "2 reasons" in line and "reason 1" not in line
    assert CPU[0].case.workload in line and CPU[2].case.workload in line


@pytest.mark.parametrize(
    ("factor", "compared", "refused"), [("policy", ["dd", "ioping", "fio"], []), ("storage", ["dd"], ["ioping", "fio"])]
)
def test_storages_are_compared_too(tmp_path: Path, factor: str, compared: list[str], refused: list[str]) -> None:
    run = made(tmp_path, IO)
    assert factors_of(run) == ["policy", "storage"]
    (suite,) = suites(run, factor)
    assert (list(suite.compared), [one.label for one in suite.refused]) == (compared, refused)
