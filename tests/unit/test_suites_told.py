"""What is compared of each suite: what is wrong with one benchmark stops no other, and is said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_runs import experiment, image, library, write_run
from tests.unit.made_suite import CPU, IO, Made, inside, of, recorded, write_suite

from collbench.analysis.own_sides import Suite, by_suite, factors_of
from collbench.analysis.runs import Observed, observe
from collbench.report.page.programs import sentences
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.record import Work

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
    sides = [image("tools", libraries=(_used_by_fio(version),)) for version in ("3.33", "3.39")]
    known = experiment(["tools"], environments=(sides[0],), images=(sides[1],), launches=8)
    (suite,) = suites(observe(write_suite(tmp_path / "run", IO, experiment=known)))
    assert list(suite.compared) == ["dd", "ioping"]
    assert [(one.label, one.why) for one in suite.refused] == [("fio", "library: fio 3.33 against fio 3.39")]
    (line,) = sentences((suite,), 0.02)
    assert "fio 3.33 against fio 3.39" in line


def test_a_library_of_one_way_to_run_a_benchmark_stops_no_other_way(tmp_path: Path) -> None:
    ways = [of("linpack", 1.0, CPU[0].work, n=2000, measure="solve")._replace(case=_with_blas(name))
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


def _with_blas(name: str) -> Case:
    return Case(workload="linpack", what={"n": 2000, "measure": "solve"}, how={"blas": name})


def _used_by_fio(version: str) -> Library:
    return msgspec.structs.replace(library("fio", version), used_by=("fio",))


def test_what_failed_is_not_compared_and_says_why(tmp_path: Path) -> None:
    one = CPU[2]
    case = one.case.having(image="tools")
    cells: dict[Any, Any] = {
        case: [recorded(one, case, launch, one.seconds) for launch in range(7)],
        inside(case): ["residual 17.2, above 16"] * 7,
    }
    found = suites(observe(write_run(tmp_path / "run", cells, ranks=1)))
    assert [one.verdict for one in found[0].comparisons] == ["not comparable"]
    (line,) = sentences(found, 0.02)
    assert "residual 17.2, above 16" in line


def test_of_several_reasons_the_answer_has_the_number(tmp_path: Path) -> None:
    """The sections of the benchmarks have each in full."""
    cells: dict[Any, Any] = {}
    for number, one in enumerate((CPU[0], CPU[2])):
        case = one.case.having(image="tools")
        cells[case] = [recorded(one, case, launch, one.seconds) for launch in range(7)]
        cells[inside(case)] = [f"reason {number}"] * 7
    (line,) = sentences(suites(observe(write_run(tmp_path / "run", cells, ranks=1))), 0.02)
    assert "2 reasons" in line and "reason 1" not in line
    assert CPU[0].case.workload in line and CPU[2].case.workload in line


@pytest.mark.parametrize(
    ("factor", "compared", "refused"),
    [("policy", ["dd", "ioping", "fio"], []), ("storage", ["dd"], ["ioping", "fio"])],
)
def test_storages_are_compared_too(tmp_path: Path, factor: str, compared: list[str], refused: list[str]) -> None:
    run = made(tmp_path, IO)
    assert factors_of(run) == ["policy", "storage"]
    (suite,) = suites(run, factor)
    assert (list(suite.compared), [one.label for one in suite.refused]) == (compared, refused)
