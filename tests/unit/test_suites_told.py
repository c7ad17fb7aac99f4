"""What a report says of programs: a sentence for each suite, which never takes an absent difference for an equality."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_runs import experiment, image, library, write_run
from tests.unit.made_suite import CPU, IO, Made, inside, of, recorded, write_suite

from collbench.analysis.observations import Observed, observe
from collbench.analysis.suites import by_suite, factors_of
from collbench.report.suites import sentences
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.record import Work

SUITES = {"linpack": "cpu", "dgemm": "cpu", "stream": "cpu", "sysbench_cpu": "cpu"} | dict.fromkeys(
    ("dd", "fio", "ioping"), "io"
)
DD = tuple(made for made in IO if made.case.workload == "dd")


def told(observed: Observed, margin: float = 0.02, factor: str = "policy") -> tuple[str, ...]:
    return sentences(by_suite(observed, factor, SUITES, margin), margin)


def verdicts(observed: Observed, margin: float = 0.02) -> dict[str, dict[str, int]]:
    """By suite how many cells have each verdict."""
    suites = by_suite(observed, "policy", SUITES, margin)
    return {suite.name: dict(Counter(one.verdict for one in suite.comparisons)) for suite in suites}


def made(path: Path, cells: tuple[Made, ...] = CPU + IO, **effects: Any) -> Observed:
    return observe(write_suite(path / "run", cells, **effects))


def test_a_suite_whose_intervals_lie_within_the_margin_costs_nothing_measurable(tmp_path: Path) -> None:
    run = made(tmp_path, CPU)
    (line,) = told(run)
    assert line.startswith("CPU: the container costs nothing measurable: ")
    assert verdicts(run) == {"cpu": {"same": 7}}


def test_a_small_difference_that_is_certain_is_not_called_nothing(tmp_path: Path) -> None:
    (line,) = told(made(tmp_path, CPU, slower={"dgemm": 1.01}))
    assert line.startswith("CPU: the container costs less than 2 %: all 4 benchmarks are within ±2 %")
    (line,) = told(made(tmp_path / "two", CPU[:2], slower={"linpack": 1.01}))
    assert line.startswith("CPU: the container costs less than 2 %: linpack is within ±2 %")


def test_what_differs_is_counted_and_the_worst_is_named_with_its_interval(tmp_path: Path) -> None:
    run = made(tmp_path, slower={"dd": 1.06, "fio": 1.09, "dgemm": 0.96}, share={"ioping": 0.06, "dd": 0.01})
    assert verdicts(run) == {"cpu": {"faster": 1, "same": 6}, "io": {"slower": 6, "unclear": 2}}
    cpu, io = told(run)
    assert "1 of 7 cells is faster" in cpu and "dgemm by 4.0 % (" in cpu
    assert "6 of 8 cells are slower" in io and "the worst fio (request) by 9.0 % (" in io


DDP = tuple(
    of("ddp", seconds, Work(amount=1, unit="steps"), network=network, measure=measure)
    for network in ("lstm", "resnet56")
    for measure, seconds in (("step", 3.0), ("compute", 2.0), ("communication", 1.0))
)


def of_training(path: Path, **slower: float) -> str:
    """The sentence of two trainings, whose communication of lstm takes 1.46x and whose steps vary by 8 %."""
    times = {made.case: made.seconds for made in DDP}
    cells: dict[Any, Any] = {}
    for made in DDP:
        case = made.case.having(image="tools")
        measure = str(case["measure"])
        factor = 1.46 if (measure, case["network"]) == ("communication", "lstm") else slower.get(measure, 1.0)
        noise = [1.0 if measure == "communication" else 1 + 0.08 * ((launch * 7 + 3) % 10 - 4.5) / 4.5
                 for launch in range(10)]  # fmt: skip
        cells[case] = [recorded(made, case, launch, times[made.case]) for launch in range(10)]
        cells[inside(case)] = [recorded(made, inside(case), launch, times[made.case] * factor * noise[launch])
                               for launch in range(10)]  # fmt: skip
    (line,) = told(observe(write_run(path, cells)))
    return line


def test_a_training_is_decided_by_its_step_and_its_parts_come_second(tmp_path: Path) -> None:
    line = of_training(tmp_path / "undecided")
    assert line.startswith("Other: undecided: intervals reach beyond ±2 % (ddp step, ")
    assert "; of 4 parts of steps 1 is slower, ddp (communication, network lstm) by 46.0 % (" in line
    line = of_training(tmp_path / "slower", step=1.3)
    assert line.startswith("Other: 2 of 2 cells are slower in the container, the worst ddp (step, network ")
    assert "; of 4 parts of steps 1 is slower, ddp (communication, network lstm)" in line


def test_the_numbers_of_a_sentence_add_up_where_cells_of_a_benchmark_differ(tmp_path: Path) -> None:
    """Of fio one measure is slower, one undecided, and one failed inside: three cells of four, not three benchmarks."""
    cells: dict[Any, Any] = {}
    for number, name in enumerate(("request", "p95", "p99", "p50")):
        made = of("fio", 1e-3, Work(amount=1, unit="requests"), measure=name)
        case = made.case.having(image="tools")
        noise = [1 + 0.2 * (number == 1) * (launch % 3 - 1) for launch in range(10)]
        factor = 1.16 if name == "request" else 1.0
        cells[case] = [recorded(made, case, launch, 1e-3) for launch in range(10)]
        cells[inside(case)] = ["died"] * 10 if name == "p99" else [
            recorded(made, inside(case), launch, 1e-3 * factor * noise[launch]) for launch in range(10)]  # fmt: skip
    run = observe(write_run(tmp_path / "run", cells))
    assert verdicts(run) == {"io": {"slower": 1, "unclear": 1, "same": 1, "not comparable": 1}}
    (line,) = told(run)
    assert re.findall(r"(\d+) (?:of 4 cells )?is ", line) == ["1"] * 4


def test_the_margin_is_the_one_asked_for(tmp_path: Path) -> None:
    run = made(tmp_path, DD, slower={"dd": 1.06})
    assert told(run)[0].startswith("I/O: 4 of 4 cells are slower in the container, the worst dd (count 16, ")
    assert told(run, 0.1)[0].startswith("I/O: the container costs less than 10 %: dd is within ±10 %")


def test_too_few_launches_are_undecided_and_not_the_same(tmp_path: Path) -> None:
    assert told(made(tmp_path, DD, launches=5)) == (
        "I/O: undecided: launches are too few for an interval (an interval needs at least 1 more launch).",
    )


def test_a_benchmark_of_a_suite_that_nobody_knows_is_told_last(tmp_path: Path) -> None:
    run = made(tmp_path, (of("aardvark", 1.0, Work(amount=1), measure="total"), *DD))
    assert [line.split(":")[0] for line in told(run)] == ["I/O", "Other"]
    own = sentences(by_suite(run, "policy", {"dd": "storages"}), 0.02)
    assert [line.split(":")[0] for line in own] == ["Storages", "Other"]


def test_two_containers_have_a_sentence_each(tmp_path: Path) -> None:
    lines = told(made(tmp_path, DD, slower={"dd": 1.06}, policies=("multi", "single")))
    assert [line.partition(",")[0] for line in lines] == ["I/O", "I/O"]
    assert lines[0].startswith("I/O, multi strict against host: 4 of 4 cells are slower with multi strict, ")
    assert lines[1].startswith("I/O, single strict against host: ")


def test_sides_with_other_software_are_not_compared_and_stop_no_other_benchmark(tmp_path: Path) -> None:
    sides = [image("tools", libraries=(_used_by_fio(version),)) for version in ("3.33", "3.39")]
    known = experiment(["tools"], environments=(sides[0],), images=(sides[1],), launches=8)
    (line,) = told(observe(write_suite(tmp_path / "run", IO, experiment=known)))
    assert line.startswith("I/O: dd and ioping are within ±2 %")
    assert line.endswith("; not compared: fio (library: fio 3.33 against fio 3.39).")
    (alone,) = told(observe(write_suite(tmp_path / "fio", IO[-2:], experiment=known)))
    assert alone == "I/O: not compared: fio (library: fio 3.33 against fio 3.39)."


def test_a_library_of_one_way_to_run_a_benchmark_stops_no_other_way(tmp_path: Path) -> None:
    ways = [of("linpack", 1.0, CPU[0].work, n=2000, measure="solve")._replace(case=_with_blas(name))
            for name in ("openblas", "mkl")]  # fmt: skip
    of_openblas = [msgspec.structs.replace(library("OpenBLAS", version), used_by=("linpack blas=openblas",))
                   for version in ("0.3.21", "0.3.29")]  # fmt: skip
    sides = [image("tools", libraries=(one,)) for one in of_openblas]
    known = experiment(["tools"], environments=(sides[0],), images=(sides[1],), launches=8)
    run = observe(write_suite(tmp_path / "run", tuple(ways), experiment=known))
    (suite,) = by_suite(run, "policy", SUITES, 0.02)
    assert [one.pair.base.case["blas"] for one in suite.comparisons] == ["mkl"]
    assert [one.label for one in suite.refused] == ["linpack blas openblas"]
    (line,) = told(run)
    assert "linpack blas openblas (library: OpenBLAS 0.3.21 against OpenBLAS 0.3.29)" in line


def _with_blas(name: str) -> Case:
    return Case(workload="linpack", what={"n": 2000, "measure": "solve"}, how={"blas": name})


def _used_by_fio(version: str) -> Library:
    return msgspec.structs.replace(library("fio", version), used_by=("fio",))


def test_what_failed_is_not_comparable_and_says_why(tmp_path: Path) -> None:
    one = CPU[2]
    case = one.case.having(image="tools")
    cells: dict[Any, Any] = {
        case: [recorded(one, case, launch, one.seconds) for launch in range(7)],
        inside(case): ["residual 17.2, above 16"] * 7,
    }
    (line,) = told(observe(write_run(tmp_path / "run", cells, ranks=1)))
    assert line == "CPU: 1 is not comparable: dgemm (single strict: failed: residual 17.2, above 16)."


def test_equal_medians_do_not_hide_slow_launches(tmp_path: Path) -> None:
    one = CPU[2]
    case = one.case.having(image="tools")
    times = [0.19, 0.19, 0.19, 0.19, 0.19, 0.4] * 10
    cells: dict[Any, Any] = {
        case: [recorded(one, case, launch, 0.19) for launch in range(60)],
        inside(case): [recorded(one, inside(case), launch, time) for launch, time in enumerate(times)],
    }
    (line,) = told(observe(write_run(tmp_path / "run", cells, ranks=1)))
    assert line.endswith(", but launches are slow at times on one side: dgemm.")


@pytest.mark.parametrize(
    ("factor", "said"),
    [("policy", "I/O: the container costs"), ("storage", "I/O, volume against overlay: dd is within ±2 %")],
)
def test_storages_are_compared_too(tmp_path: Path, factor: str, said: str) -> None:
    run = made(tmp_path, IO)
    assert factors_of(run) == ["policy", "storage"]
    (line,) = told(run, factor=factor)
    assert line.startswith(said)
    if factor == "storage":
        assert line.endswith("; not compared: ioping, fio (measured on one side only).")
