"""What would tell more of what is undecided: a command that gets more launches, or both sides measured alternately."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_gates import SMALL, made_gate
from tests.unit.made_runs import Entry, experiment, made_case, write_run

from collbench.analysis.estimate import FEWEST
from collbench.cli.launch import launch_command
from collbench.report.verdict import ALTERNATELY, EXTEND
from collbench.schema.case import Case
from collbench.schema.manifest import Until

BEGINS = EXTEND.partition("{")[0]
HOST, SINGLE = made_case(image="openmpi"), made_case("single", "strict", image="openmpi")


def undecided(seed: int, *cases: Case, launches: int = 9, apart: float = 0.03) -> dict[Case, list[Entry]]:
    """The second case takes 3 % longer, and launches differ by twice as much."""
    draw = np.random.default_rng(seed)
    return {
        case: [float(1e-5 * np.exp(draw.normal(apart * place, 0.06))) for _ in range(launches)]
        for place, case in enumerate(cases)
    }


def suggested(out: str, run: Path, command: str = "launch") -> list[int]:
    """The numbers of launches that a run is to get."""
    asked = re.compile(
        rf"\* next: collbench {command} .*--resume {re.escape(str(run))} --until decided --launches ([0-9]+)"
    )
    return [int(match[1]) for line in out.splitlines() if (match := asked.match(line))]


def verdicts(compare: Collbench, run: Path, *flags: str) -> list[str]:
    document = json.loads(compare(run, "--by", "policy", *flags, "--style", "json").out)
    return [one["verdict"] for one in document["comparisons"]]


@pytest.mark.parametrize("until", ["launches", "decided"])
def test_a_run_that_launch_made_is_extended(compare: Collbench, tmp_path: Path, until: Until) -> None:
    made = experiment(("openmpi",), launches=9, until=until)
    run = write_run(tmp_path / "run", undecided(4, HOST, SINGLE), experiment=made)
    said = compare(run, "--by", "policy").out
    assert verdicts(compare, run) == ["unclear"]
    assert suggested(said, run) == [18] and ALTERNATELY not in said


@pytest.mark.parametrize(("seed", "more", "most"), [(1, 11, 18), (20, 1, 14), (3, 60, 14)])
def test_as_many_are_suggested_as_decide_anything(
    compare: Collbench, tmp_path: Path, seed: int, more: int, most: int
) -> None:
    """Of seven: twice as many decide too few, are more than enough, or would have to be over four times as many."""
    run = write_run(tmp_path / "run", undecided(seed, HOST, SINGLE, launches=7),
                    experiment=experiment(("openmpi",), launches=7))  # fmt: skip
    (one,) = json.loads(compare(run, "--by", "policy", "--style", "json").out)["comparisons"]
    assert (one["launches_more"], suggested(compare(run, "--by", "policy").out, run)) == (more, [most])


def test_the_command_has_the_flags_of_launch() -> None:
    known = {name for parameter in launch_command.params for name in parameter.opts}
    assert {"--resume", "--until", "--launches"} == set(re.findall(r"--[a-z]+", EXTEND)) <= known


def test_of_a_run_that_ended_early_more_are_suggested_than_it_was_to_have(compare: Collbench, tmp_path: Path) -> None:
    """Fewer would be refused."""
    made = experiment(("openmpi",), launches=14, until="decided")
    run = write_run(tmp_path / "run", undecided(4, HOST, SINGLE, launches=7), experiment=made)
    assert suggested(compare(run, "--by", "policy").out, run) == [28]


def test_so_many_are_suggested_that_they_can_decide(compare: Collbench, tmp_path: Path) -> None:
    made = experiment(("openmpi",), launches=2, until="launches")
    run = write_run(tmp_path / "run", undecided(4, HOST, SINGLE, launches=2), experiment=made)
    assert suggested(compare(run, "--by", "policy").out, run) == [FEWEST]


def test_two_runs_and_folders_of_runs_are_to_be_measured_alternately(compare: Collbench, tmp_path: Path) -> None:
    for name, case in (("a", HOST), ("b", HOST)):
        apart = 0.0 if name == "a" else 0.06
        write_run(tmp_path / name, {case: undecided(4, HOST, case, apart=apart)[case]})
    found = compare(tmp_path / "a", tmp_path / "b").out
    assert f"* {ALTERNATELY}" in found and BEGINS not in found
    declared = compare(tmp_path / "a", tmp_path / "b", "--in-blocks").out
    assert BEGINS not in declared, "neither run alone has both sides"


def test_runs_of_mpirun_in_a_folder_have_no_run_that_could_be_continued(here: Collbench, tmp_path: Path) -> None:
    host = made_case()
    for number in range(7):
        cells = undecided(number, host, host.having(driver="python"), launches=1)
        write_run(tmp_path / "all" / str(number), cells)
    found = here("compare", tmp_path / "all", "--by", "driver").out
    assert f"* {ALTERNATELY}" in found and "--resume" not in found


def test_where_launches_would_not_tell_none_are_asked_for(compare: Collbench, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    cells: dict[Case, list[Entry]] = {
        case: [float(1e-5 * np.exp(draw.normal(0, 2))) for _ in range(9)] for case in (HOST, SINGLE)
    }
    run = write_run(tmp_path / "run", cells)
    (one,) = json.loads(compare(run, "--by", "policy", "--style", "json").out)["comparisons"]
    assert (one["verdict"], one["launches_more"]) == ("unclear", None)
    assert BEGINS not in compare(run, "--by", "policy").out


@pytest.mark.parametrize(
    ("launches", "planned", "most"), [(9, 9, 18), (9, 600, 1000), (9, 1000, None)]
)  # fmt: skip
def test_no_more_launches_are_suggested_than_a_plan_may_have(
    compare: Collbench, tmp_path: Path, launches: int, planned: int, most: int | None
) -> None:
    made = experiment(("openmpi",), launches=planned, until="decided")
    run = write_run(tmp_path / "run", undecided(4, HOST, SINGLE, launches=launches), experiment=made)
    assert suggested(compare(run, "--by", "policy").out, run) == ([] if most is None else [most])


def test_what_is_given_up_as_too_noisy_starts_nothing(compare: Collbench, here: Collbench, tmp_path: Path) -> None:
    """Until decided: what is resumed would end at once."""
    draw = np.random.default_rng(3)
    cells: dict[Case, list[Entry]] = {
        case: [float(1e-5 * np.exp(draw.normal(0, 2))) for _ in range(9)] for case in (HOST, SINGLE)
    }
    run = write_run(tmp_path / "run", cells, experiment=experiment(("openmpi",), launches=9, until="decided"))
    assert verdicts(compare, run) == ["unclear"]
    assert all(BEGINS not in said for said in (compare(run, "--by", "policy").out, here("advise", run).out))


def test_what_only_the_readers_margin_leaves_open_starts_nothing(compare: Collbench, tmp_path: Path) -> None:
    """Launches are made until it is decided by their own margin."""
    cells: dict[Case, list[Entry]] = {
        case: [1e-5 * (1 + 0.001 * (number % 3) * place) for number in range(20)]
        for place, case in enumerate((HOST, SINGLE))
    }
    run = write_run(tmp_path / "run", cells, experiment=experiment(("openmpi",), launches=20, until="decided"))
    assert verdicts(compare, run) == ["same"]
    assert verdicts(compare, run, "--margin", "0.05%") == ["unclear"]
    assert BEGINS not in compare(run, "--by", "policy", "--margin", "0.05%").out


def test_a_gate_is_resumed_as_a_gate(compare: Collbench, tmp_path: Path) -> None:
    times = undecided(4, HOST, SINGLE)
    run = made_gate(tmp_path, {SMALL: times[HOST]}, {SMALL: times[SINGLE]}, launches=9)
    assert suggested(compare(run, "--by", "side").out, run, "gate") == [18]
