"""What an experiment that was stopped lacks, and what a cell counts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.unit.made_program_runs import program_case, program_record
from tests.unit.made_runs import experiment, made_case, made_cell, made_failure, made_manifest, made_record, write_run

from collbench.analysis.results import Cell, cells_of, joined
from collbench.analysis.runs import observe, shortage
from collbench.run.turns import _trimmed
from collbench.schema.record import Duet, ResultCheck
from collbench.schema.world import TRIMMED

US = 1e-6


def cell(measured: int, failed: int = 0, skipped: int = 0) -> Cell:
    """A cell with so many launches of each kind."""
    records = [made_record(made_case(), launch, US) for launch in range(measured)]
    records += [made_failure(made_case(), 100 + number, "broken") for number in range(failed)]
    records += [made_failure(made_case(), 200 + number, "none", "skipped") for number in range(skipped)]
    return cells_of(records, cases=[made_case()])[made_case()]


@pytest.mark.parametrize(
    ("cells", "short"),
    [
        ([(3, 0, 0)], 0),
        ([(1, 2, 0), (0, 0, 3), (1, 1, 1)], 0),
        ([(2, 0, 0)], 1),
        ([(1, 1, 0), (0, 1, 1), (3, 0, 0)], 2),
        ([], 0),
    ],
)
def test_launches_that_failed_or_were_skipped_are_not_missing(cells: list[tuple[int, int, int]], short: int) -> None:
    run = made_manifest(experiment=experiment(("a",), launches=3))
    lacking = shortage(Path("none"), run, [cell(*counts) for counts in cells])
    assert (lacking.cells, lacking.planned, lacking.growing) == (short, 3, False)


def test_a_launch_that_failed_has_failed_at_every_size_of_its_cell(tmp_path: Path) -> None:
    """It is one record: of the first case that it did not measure."""
    small, large = made_case("host", size=8), made_case("host", size=4096)
    elsewhere = made_case("single", "strict", size=8)
    run = write_run(tmp_path / "run", {
        small: [1e-6, "a node died", 1e-6, "a node died"], large: [2e-6, None, "too late", None],
        elsewhere: [1e-6, 1e-6, 1e-6, None],
    })  # fmt: skip
    cells = observe(run).cells
    assert {case["size"]: (len(cells[case].medians), cells[case].failed) for case in (small, large)} == {
        8: (2, 2), 4096: (1, 3)
    }  # fmt: skip
    assert cells[large].reasons == {"a node died", "too late"}
    assert (cells[elsewhere].failed, cells[small].reasons) == (0, {"a node died"}), "of that cell alone"


def test_a_wrong_result_is_that_of_its_case_alone(tmp_path: Path) -> None:
    """A size that the launch did not come to has failed with it, and its other launches still compare."""
    small, large = made_case("host", size=8), made_case("host", size=4096)
    wrong = msgspec.structs.replace(made_failure(small, 1, "wrong result"), check=ResultCheck(wrong=3))
    cells = cells_of([made_record(small, 0, US), made_record(large, 0, US), wrong])
    assert [(cells[case].failed, cells[case].wrong) for case in (small, large)] == [(1, 1), (1, 0)]


def test_the_processor_time_of_an_execution_counts_its_warm_up_too() -> None:
    """Nine samples and one warm-up took ten times half a second."""
    (found,) = cells_of([program_record(program_case(), 0, 1.0, cpu=0.5)]).values()
    assert found.cpu == {0: pytest.approx((0.5, 1.0))}


@pytest.mark.parametrize("steps", [(1e-8, 4e-8), (4e-8, 1e-8)])
def test_runs_together_have_the_coarser_clock(steps: tuple[float, float]) -> None:
    one, other = ({made_case(): made_cell(made_case(), [US], clock_step=step)} for step in steps)
    assert joined([(one, 0), (other, 1)])[made_case()].half_step == 2e-8


def test_the_shortest_burst_decides_on_what_the_clock_leaves_open() -> None:
    records = [made_record(made_case(), launch, US, burst=burst) for launch, burst in enumerate((20, 10))]
    for number, burst in ((0, 1), (1, 20), (2, 10)):
        found = cells_of(records[:number], cases=[made_case()])[made_case()].of_origin(clock_step=8e-9)
        assert found.half_step == pytest.approx(4e-9 / burst)


def test_the_clock_moves_a_time_of_a_duet_by_less_than_a_median() -> None:
    """Times of 200 to 210 ns on a clock of 10 ns, which a slice takes the trimmed mean of; one launch alone is not."""
    draw = np.random.default_rng(1)
    for true in np.linspace(200, 210, 21):
        began = draw.uniform(0, 1e6, 20_000)
        shown = np.floor((began + true) / 10) * 10 - np.floor(began / 10) * 10
        found = _trimmed(shown.astype(np.int64))
        assert found is not None and abs(found * 1e9 - true) <= TRIMMED * 10 + 0.1
    duet = Duet(worlds=2, started=0, seconds=US, slices=(), checked=())
    records = [made_record(made_case(), 0, US, duet=duet), made_record(made_case(), 1, US)]
    for number, step in ((1, TRIMMED * 1e-8), (2, 5e-9)):
        (cell,) = cells_of(records[:number]).values()
        assert cell.of_origin(clock_step=1e-8).half_step == pytest.approx(step)
