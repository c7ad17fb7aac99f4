"""What the latest run of a history shows and three runs have not confirmed: told, and never as a change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_history import night, steps, write_history
from tests.unit.made_runs import host, made_case

from collbench.analysis.change_points import Level, Trace, outside
from collbench.cli.terminal import amount

SMALL, MIDDLE, LARGE = (made_case(size=size) for size in (1024, 4096, 16384))
QUIET = steps((1e-5, 20))
JUMP = steps((1e-5, 19), (1.01e-4, 1))


@pytest.fixture
def history(here: Collbench) -> Collbench:
    """`history(*arguments)`: the command in this process."""
    return lambda *arguments: here("history", *arguments)


def test_the_jump_of_the_latest_run_is_told_everywhere(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET, MIDDLE: JUMP, LARGE: QUIET})
    page = tmp_path / "page.html"
    found = history(path, "-o", page)
    assert [line for line in found.out.splitlines() if line.startswith(night(19)) and "10.1x" in line and "4K" in line]
    document = json.loads(history(path, "--style", "json").out)
    assert document["answer"] in found.out and document["answer"] in page.read_text()
    assert (document["events"], len(document["cells"])) == ([], 3)
    (latest,) = document["latest"]
    assert (latest["run"], latest["of"]) == (19, 3)
    assert [cell["name"] for cell in latest["cells"]] == ["allreduce sum float32, 4K"]
    assert latest["cells"][0]["ratio"] == pytest.approx(10.1, rel=0.02)


def outside_cells(history: Collbench, *arguments: object) -> list[list[tuple[str, float]]]:
    """Of each latest run the cells outside of their level, with their time over it."""
    latest = json.loads(history(*arguments, "--style", "json").out)["latest"]
    return [[(cell["name"], round(cell["ratio"], 1)) for cell in run["cells"]] for run in latest]


def test_it_is_no_change_and_fails_the_check_that_looks_for_it(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: JUMP})
    assert history(path, "--fail-on", "different").code == 0
    for kinds in ("outside", "slower,outside", "outside,faster"):
        found = history(path, "--fail-on", kinds)
        assert found.code == 1 and kinds in found.err
    assert history(path, "--since", night(19), "--fail-on", "outside").code == 1
    assert outside_cells(history, path, "--since", "2027-01-01") == []
    unknown = history(path, "--fail-on", "outside,wrong")
    assert (unknown.code, unknown.out) == (2, "") and "wrong" in unknown.err


@pytest.mark.parametrize(
    ("times", "code"),
    [(QUIET, 0), (steps((1e-5, 28), (2e-5, 2)), 1), (steps((1e-5, 29), (5e-6, 1)), 1),
     (steps((1e-5, 17), (2e-5, 3)), 0)],  # a change, which `slower` fails on
)  # fmt: skip
def test_two_nights_of_twice_the_time_fail_on_outside(
    history: Collbench, tmp_path: Path, times: list[float], code: int
) -> None:
    path = write_history(tmp_path / "n", {SMALL: times, LARGE: [1e-5] * len(times)}, noise=0.01)
    assert history(path, "--fail-on", "outside").code == code


@pytest.mark.parametrize(
    ("times", "told"),
    [(QUIET, False), (JUMP, True), (steps((1e-5, 18), (1.5e-5, 2)), True),  # a second night is told as the first
     (steps((1e-5, 17), (1.5e-5, 3)), False),  # a change
     ([*JUMP, 1e-5], False), (steps((1e-5, 7), (1e-4, 1)), True), (steps((1e-5, 6), (1e-4, 1)), False),
     ([1e-5, 1e-5, 1e-4, *QUIET[:16], 1.05e-4], False),  # as far as once before
     (steps((1e-5, 10), (2e-5, 9), (1e-5, 1)), True)],  # its level is the one now
)  # fmt: skip
def test_what_is_told(history: Collbench, tmp_path: Path, times: list[float], told: bool) -> None:
    path = write_history(tmp_path / "n", {SMALL: times, LARGE: QUIET[: len(times)]})
    assert bool(outside_cells(history, path)) == told


def test_the_cell_farthest_from_its_level_is_the_first(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: [*QUIET[:19], 2e-5], MIDDLE: JUMP, LARGE: QUIET})
    (cells,) = outside_cells(history, path)
    assert [name for name, _ in cells] == ["allreduce sum float32, 4K", "allreduce sum float32, 1K"]


def test_a_cell_that_the_latest_run_lacks_or_failed_is_not_told(history: Collbench, tmp_path: Path) -> None:
    gone = write_history(tmp_path / "gone", {SMALL: [*QUIET, 1e-5], MIDDLE: JUMP, LARGE: [*QUIET, 1e-5]})
    assert outside_cells(history, gone) == []
    failed = write_history(tmp_path / "failed", {SMALL: [*QUIET, 1e-5], MIDDLE: [*JUMP, "died"]})
    assert outside_cells(history, failed) == []


def test_each_machine_has_its_latest_run(history: Collbench, tmp_path: Path) -> None:
    """Two of them in turns: the jump is in the last run of the first one, which is not the last of all."""
    times = [1e-4 if number == 38 else 1e-5 for number in range(40)]
    turns = write_history(tmp_path / "n", {SMALL: times}, lambda number: {
        "hosts": (host(cpu="Xeon" if number % 2 else "EPYC 7003"),)})  # fmt: skip
    (latest,) = json.loads(history(turns, "--style", "json").out)["latest"]
    assert (latest["run"], latest["of"], len(latest["cells"])) == (38, 1, 1)


def named(values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> bool:
    """Whether a page of these logarithms [runs, cells], without a change, tells its latest run."""
    runs, cells = values.shape
    traces = [Trace(values[:, cell], np.arange(runs)) for cell in range(cells)]
    return bool(outside(traces, [(Level(0, runs),)] * cells, 0.02))


@pytest.mark.parametrize("runs", [8, 12, 30])
def test_few_pages_of_alike_runs_tell_their_latest(runs: int) -> None:
    """At most 5 % of them, whether noise is normal or has far outliers; of 400, more than 34 would hardly be chance."""
    draw = np.random.default_rng(1)
    shape = (runs, 10)
    assert sum(named(draw.normal(0, 0.05, shape)) for _ in range(400)) <= 34
    assert sum(named(0.02 * draw.standard_t(2, shape)) for _ in range(400)) <= 34


def test_runs_with_few_of_the_cells_are_no_statistic_of_all() -> None:
    """One cell has runs of its own, and an outlier in one of them, which hides no jump of another cell."""
    draw = np.random.default_rng(2)
    alone, others = draw.normal(0, 0.01, 30), draw.normal(0, 0.01, (3, 10))
    alone[5], others[0, -1] = 5.0, 1.0
    traces = [Trace(alone, np.arange(30)), *(Trace(own, np.arange(20, 30)) for own in others)]
    assert set(outside(traces, [(Level(0, len(one.values)),) for one in traces], 0.02)) == {1}


def test_a_page_that_cannot_be_written_is_a_wrong_request(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET[:8]})
    nowhere, folder = tmp_path / "none" / "x.html", tmp_path / "is.html"
    folder.mkdir()
    for page, words in ((nowhere, f"there is no folder {nowhere.parent}"), (folder, "is a folder. Name a file.")):
        found = history(path, "-o", page)
        assert (found.code, found.out) == (2, "")
        assert found.err.startswith(f"collbench: -o {page}: {words}") and found.err.count("\n") == 1


def test_the_size_of_a_page_is_told_as_that_of_a_report(history: Collbench, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = history(write_history(tmp_path / "n", {SMALL: QUIET[:8]}), "-o", page)
    assert found.err == f"collbench: {page}: {amount(page.stat().st_size)}\n"
    assert (amount(26_500), amount(412_000)) == ("27 kB", "0.4 MB")
