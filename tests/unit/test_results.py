"""Cells of runs: what records say, what launches show besides a median, runs that were stopped or stand twice."""

from __future__ import annotations

import gc
import json
import shutil
import sys
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import launches_of, program, program_case, program_record
from tests.unit.made_runs import (
    Entry,
    experiment,
    image,
    library,
    made_case,
    made_cell,
    made_failure,
    made_manifest,
    made_record,
    spread,
    twin,
    write_launches,
    write_run,
)

from collbench.analysis.baseline import keep, load
from collbench.analysis.compare import Comparison, Reason, compare
from collbench.analysis.factors import find_factor
from collbench.analysis.launches import Slow, drift, serial, slow
from collbench.analysis.pairs import across, within
from collbench.analysis.results import Cell, cells_of, joined, without_collector
from collbench.analysis.runs import gather, observe, shortage
from collbench.cli import run_command
from collbench.errors import RunReadError
from collbench.report import new_style
from collbench.report.cells import launch_tables, tables
from collbench.report.styles import fields_of
from collbench.report.verdict import slow_text
from collbench.run.turns import _trimmed
from collbench.schema.case import Case
from collbench.schema.files import is_being_written, locked
from collbench.schema.record import Duet, Record, ResultCheck, Samples, Work
from collbench.schema.store import read_run
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


# What records say beside their times ----------------------------------------------------------------------------------


def test_records_that_say_the_same_share_it() -> None:
    cases = [made_case(size=size) for size in (8, 16)]
    records = [made_record(case, launch, US, notes=("a", "b")) for launch in range(3) for case in cases]
    one, other = cells_of(records).values()
    assert len(one.results.facts) == len(cases) and one.results is other.results
    assert (one.notes, one.transports, other.notes) == ({"a", "b"}, {"shared memory"}, {"a", "b"})


def test_what_one_cell_notes_no_other_has_noted() -> None:
    cases = [made_case(size=size) for size in (8, 16)]
    records = [made_record(case, 0, US, notes=("a",), contended=True) for case in cases]
    records += [made_record(cases[0], launch, US, notes=(note,), contended=True, gate="barrier")
                for launch, note in ((1, "b"), (2, "c"))]  # fmt: skip
    one, other = cells_of(records).values()
    assert (one.notes, one.contended, len(one.how)) == ({"a", "b", "c"}, {0, 1, 2}, 2)
    assert (other.notes, other.contended, len(other.how)) == ({"a"}, {0}, 1)


def test_cells_of_several_runs_keep_what_each_noted() -> None:
    case = made_case()
    one, other = (cells_of(made_record(case, launch, launch + US, notes=(note,)) for launch, note in enumerate(notes))
                  for notes in ("ab", "c"))  # fmt: skip
    cell = joined([(one, 0), (other, 2)])[case]
    assert (cell.launches, cell.medians, cell.notes) == ([0, 1, 2], [US, 1 + US, US], {"a", "b", "c"})
    assert one[case].notes == {"a", "b"}


def test_a_launch_counts_once_and_one_that_was_lost_and_measured_later_has_not_failed() -> None:
    """In the order of launches, whatever the order of records."""
    case = made_case()
    records = [
        made_failure(case, 0, "lost: node n1"), made_record(case, 2, 3 * US), made_record(case, 0, US),
        made_record(case, 2, 9 * US), made_failure(case, 1, "lost: node n2"), made_failure(case, 1, "lost: node n3"),
    ]  # fmt: skip
    cell = cells_of(records)[case]
    assert (cell.launches, cell.medians, cell.repeated) == ([0, 2], [US, 3 * US], 1)
    assert (cell.failed, cell.lost, cell.reasons) == (1, 1, {"lost: node n3"})


# The garbage collector while a run is read ----------------------------------------------------------------------------


def test_it_is_paused_while_records_are_read() -> None:
    during: list[bool] = []

    def records() -> Iterator[Record]:
        during.append(gc.isenabled())
        yield made_record(made_case(), 0, 1e-6)

    cells_of(records())
    assert (during, gc.isenabled()) == ([False], True)


class Watched(dict[Case, Cell]):
    """Cells that note whether the collector is on when they are asked for."""

    def __init__(self) -> None:
        self.during: list[bool] = []

    def items(self) -> ItemsView[Case, Cell]:  # type: ignore[override]
        self.during.append(gc.isenabled())
        return super().items()


def test_it_is_paused_while_a_table_is_made() -> None:
    cells = Watched()
    launch_tables(cells)
    assert (cells.during, gc.isenabled()) == ([False], True)


def test_it_goes_on_after_a_line_that_is_no_record() -> None:
    def damaged() -> Iterator[Record]:
        yield made_record(made_case(), 0, 1e-6)
        raise RunReadError("line 2")

    with pytest.raises(RunReadError):
        cells_of(damaged())
    assert gc.isenabled()


def test_who_had_paused_it_goes_on_without() -> None:
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


# What launches show besides a median ----------------------------------------------------------------------------------

HOST, MULTI = made_case("host", image="a"), made_case("multi", "strict", image="a")


def rising(first: float, share: float, n: int = 10) -> list[float]:
    return [first * (1 + share * i / (n - 1)) for i in range(n)]


def test_a_drift_that_can_be_all_of_the_difference_is_named() -> None:
    assert drift(rising(1.0, 0.07), rising(1.07, 0.07)) == pytest.approx(0.07, rel=0.1)
    assert drift(spread(1.0), rising(1.07, 0.07)) is not None  # one side is enough
    assert drift(rising(1.07, -0.07), rising(1.0, -0.07)) is not None  # a machine that becomes faster


def test_a_difference_far_beyond_the_drift_is_a_difference() -> None:
    assert drift(rising(1.0, 0.07), rising(2.0, 0.07)) is None
    assert drift(spread(1.0), spread(1.1)) is None


def test_launches_without_a_trend_are_seldom_called_drifting() -> None:
    draw = np.random.default_rng(3)
    found = [drift(*np.exp(draw.normal(0, 0.05, (2, 10))).tolist()) is not None for _ in range(400)]
    assert np.mean(found) <= 0.07


def test_launches_of_two_kinds_are_counted_on_both_sides() -> None:
    steady = spread(1.0, 60, 0.004)
    jumping = [time * (2.0 if n % 3 == 0 else 1.0) for n, time in enumerate(steady)]
    found = slow(steady, jumping)
    assert found is not None and (found.base, found.other, found.launches) == (0, 20, (60, 60))
    assert slow(jumping, jumping) is None and slow(steady, steady) is None
    assert slow(steady, [*jumping[:1], *steady[1:]]) is None  # one of sixty is chance
    shifted = [1.3 * time for time in steady]
    assert slow(steady, shifted, one_median=False) is None  # all of a side, so none of it is slow for that side
    assert slow(steady, [1.3 * time for time in jumping], one_median=False) == found


def test_launches_with_a_memory_have_a_high_score_and_others_have_not() -> None:
    draw = np.random.default_rng(4)
    scores = {}
    for memory in (0.0, 0.6):
        found = []
        for _ in range(200):
            sides = draw.normal(size=(2, 25))
            for i in range(1, 25):
                sides[:, i] = memory * sides[:, i - 1] + (1 - memory**2) ** 0.5 * sides[:, i]
            one, other = np.exp(0.03 * sides).tolist()
            found.append(serial(one, other, True) or 0.0)
        scores[memory] = np.array(found)
    assert np.mean(scores[0.0] > 1.645) <= 0.07
    assert np.mean(scores[0.6] > 1.645) >= 0.8
    assert serial(spread(1.0, 9), spread(1.0, 9), True) is None


def test_the_drift_of_two_runs_is_that_of_their_launches_in_whatever_order_they_were_recorded(tmp_path: Path) -> None:
    """A launch that was lost is repeated, and recorded, after later ones."""
    found = {}
    for name, order in (("in order", range(10)), ("repeated", (0, 3, 6, 9, 1, 4, 7, 2, 5, 8))):
        base, other = (
            observe(write_run(tmp_path / name / side, {HOST: [made_record(HOST, n, times[n]) for n in order]}))
            for side, times in (("a", rising(1e-5, 0.07)), ("b", rising(1.07e-5, 0.07)))
        )
        [found[name]] = compare(across(base, other, None, frozenset()), in_blocks=False)
        assert list(base.cells[HOST].launches) == list(other.cells[HOST].launches) == [*range(10)]
    assert {one.verdict for one in found.values()} == {"unclear"}
    assert found["repeated"].why == found["in order"].why == Reason("drift", (pytest.approx(0.07, abs=0.005),))


def one_cell(path: Path, base: Sequence[Entry], other: Sequence[Entry]) -> Comparison:
    observed = observe(write_run(path, {HOST: base, MULTI: other}))
    [found] = compare(within(observed, find_factor("policy"), frozenset()))
    return found


def by_barrier(times: Sequence[float], *numbers: int) -> list[Entry]:
    """Launches on the host, of which these fell back to a barrier."""
    gates = ["barrier" if n in numbers else "roundtime" for n in range(len(times))]
    return [made_record(HOST, n, time, gate=gate) for n, (time, gate) in enumerate(zip(times, gates, strict=True))]


def test_one_launch_that_was_measured_in_another_way_leaves_the_others(tmp_path: Path) -> None:
    times = spread(10e-6, 25)
    found = one_cell(tmp_path / "run", by_barrier(times, 3), [2 * time for time in times])
    assert (found.verdict, found.launches, found.left_out) == ("slower", (24, 24), 1)
    assert found.ratio is not None and found.ratio.value == pytest.approx(2.0)
    [table] = tables([found])
    assert any("measured differently" in note and note.endswith(": 1") for note in table.notes)


def test_too_few_launches_that_were_measured_alike_are_no_comparison(tmp_path: Path) -> None:
    times = spread(10e-6, 10)
    found = one_cell(tmp_path / "run", by_barrier(times, *range(5)), times)
    differing = (("gate", "barrier and roundtime", "roundtime"),)
    assert (found.verdict, found.why) == ("not comparable", Reason("measured differently", differing))
    six = one_cell(tmp_path / "six", by_barrier(times, *range(4)), times)
    assert (six.verdict, six.launches) == ("same", (6, 6))


def test_a_median_that_hides_slow_launches_is_said_with_its_verdict(tmp_path: Path) -> None:
    steady = spread(10e-6, 60, 0.004)
    jumping = [time * (2.0 if n % 6 == 0 else 1.0) for n, time in enumerate(steady)]
    found = one_cell(tmp_path / "run", steady, jumping)
    assert (found.verdict, found.slow) == ("same", Slow(0, 10, (60, 60)))
    assert found.slow is not None and slow_text(found.slow) in tables([found])[0].rows[0][-1]


def test_samples_that_began_late_are_said_beside_a_verdict(tmp_path: Path) -> None:
    times = spread(10e-6)
    late = [made_record(MULTI, n, time, samples=Samples(n=200, invalid=190, warmup=5)) for n, time in enumerate(times)]
    [table] = tables([one_cell(tmp_path / "run", times, late)])
    said = "63 % of the samples began late at the gate and are excluded; of the worst cell 95 % (1K, a multi strict)"
    assert said in table.notes


def test_the_table_says_for_how_many_sizes_intervals_hold(tmp_path: Path) -> None:
    for number in (1, 3):
        cases = [case.having(size=8 << power) for power in range(number) for case in (HOST, MULTI)]
        observed = observe(write_run(tmp_path / str(number), dict.fromkeys(cases, spread(1e-5))))
        [table] = tables(compare(within(observed, find_factor("policy"), frozenset())))
        assert any(f" {number} sizes " in note for note in table.notes) is (number > 1)


def test_runs_one_after_the_other_advise_with_a_caution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, time, lib in (("a", 1e-5, library()), ("b", 2e-5, library("MPICH", "5.0.2"))):
        write_launches(tmp_path / name, {made_case(): spread(time)}, libraries=(lib,))
    for flags, cautions in (([], 1), (["--in-blocks"], 0)):
        argv = ["collbench", "advise", str(tmp_path / "a"), str(tmp_path / "b"), *flags]
        monkeypatch.setattr(sys, "argv", argv)
        assert run_command(speaks=True) == 0
        assert capsys.readouterr().out.count("measured alternately") == cautions
        monkeypatch.setattr(sys, "argv", [*argv, "--style", "json"])
        run_command(speaks=True)
        assert len(json.loads(capsys.readouterr().out)["cautions"]) == cautions


def side_names(path: Path, factor: str, *engines: str) -> set[str]:
    """What a table of policies and images says of the sides of a run with the host and these engines."""
    cases = [made_case("host", image=image) for image in ("a", "b")]
    cases += [made_case("multi", "strict", image=image, engine=engine) for image in ("a", "b") for engine in engines]
    observed = observe(write_run(path, dict.fromkeys(cases, spread(1e-5))))
    pairs = within(observed, find_factor(factor), frozenset({"engine"} if factor == "policy" else ()))
    [table] = tables(compare(pairs))
    return {row[table.columns.index("sides")] for row in table.rows}


def test_sides_of_different_engines_name_the_engine(tmp_path: Path) -> None:
    assert side_names(tmp_path / "1", "policy", "docker") == {"multi strict vs host (docker)"}
    assert side_names(tmp_path / "2", "image", "docker") == {"b vs a", "b vs a (multi strict)"}
    assert side_names(tmp_path / "3", "image", "docker", "podman") == {
        "b vs a", "b vs a (docker multi strict)", "b vs a (podman multi strict)"
    }  # fmt: skip
    assert side_names(tmp_path / "4", "engine", "docker") == {"docker multi strict vs host"}


# The same launches are refused where they would count twice, under whatever names -------------------------------------

CASES = {made_case(policy, image="a"): spread(centre) for policy, centre in (("host", 1e-5), ("single", 2e-5))}


def refuse(here: Collbench, arguments: tuple[object, ...], *folders: object) -> None:
    """It ends with 2, prints nothing, and the message names these folders."""
    found = here(*arguments)
    assert (found.code, found.out) == (2, ""), arguments
    assert "same launches" in found.err
    assert all(str(folder) in found.err for folder in folders), found.err


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", CASES)


@pytest.mark.parametrize("command", ["advise", "model", "report"])
def test_a_run_that_is_named_twice(here: Collbench, run: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "link").symlink_to(run)
    copy = shutil.copytree(run, tmp_path / "copy")
    more = ("-o", tmp_path / "page.html") if command == "report" else ()
    for again in (run, tmp_path / "link", copy):
        refuse(here, (command, run, again, *more), run, again)
    assert not (tmp_path / "page.html").exists()


def test_a_copy_is_not_compared_with_its_original(here: Collbench, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    refuse(here, ("compare", run, copy), run, copy)
    assert here("compare", run, twin(run)).code == 0, "another run that measured the same"


def test_a_run_is_not_compared_with_its_own_baseline(here: Collbench, run: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert here("compare", run, "--save-baseline", kept).code == 0
    refuse(here, ("compare", run, "--baseline", kept), run, kept)
    refuse(here, ("compare", shutil.copytree(run, tmp_path / "copy"), "--baseline", kept), kept)
    assert here("compare", twin(run), "--baseline", kept).code == 0, "another run that measured the same"


def test_a_folder_is_not_compared_with_a_run_in_it(here: Collbench, tmp_path: Path) -> None:
    folder = write_launches(tmp_path / "a", CASES)
    refuse(here, ("compare", folder, folder / "003"), f"{folder / '003'} (in {folder}) and {folder / '003'} hold")


@pytest.mark.parametrize(
    "arguments",
    [("compare", "a", "b"), ("compare", "b", "--by", "policy"), ("advise", "a"), ("report", "a"), ("model", "a")],
)
def test_copies_of_one_launch_are_no_launches(
    here: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        first = write_run(tmp_path / name / "l1", {case: medians[:1] for case, medians in CASES.items()})
        for number in range(2, 8):
            shutil.copytree(first, first.with_name(f"l{number}"))
    of = arguments[1]
    refuse(here, arguments, f"{of}/l1 (in {of})", f"{of}/l2 (in {of})")


def test_a_copy_that_was_gone_on_with_has_the_same_launches(here: Collbench, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    lines = (copy / "records.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "records.jsonl").write_bytes(b"".join(lines[:4]))
    refuse(here, ("advise", run, copy), run, copy)


def test_copies_in_a_history(here: Collbench, run: Path, tmp_path: Path) -> None:
    nights = tmp_path / "nights"
    for name in ("n1", "n2"):
        shutil.copytree(run, nights / name)
    refuse(here, ("history", nights), nights / "n1", nights / "n2")


def test_runs_that_begin_at_once_by_one_command_are_others_where_they_measured_something_else(
    here: Collbench, tmp_path: Path
) -> None:
    """As on two machines; a first launch that failed in the same way is no measurement."""
    case, begun = made_case(), {"command": ("collbench", "run")}
    runs = [write_run(tmp_path / name, {case: ["died", *spread(centre)]}, **begun)
            for name, centre in (("a", 1e-5), ("b", 2e-5))]  # fmt: skip
    assert here("compare", *runs).code == 0


# Results that must come out equal -------------------------------------------------------------------------------------

BARE = Case(
    workload="train", what={"network": "lstm", "measure": "batch"}, how={"threads": 1, "data": "made-up"}
).having(image="torch")
INSIDE = BARE.having(engine="docker", policy="multi", isolation="strict")
WORK = Work(amount=1, unit="batches")
DIFFER = "the same software should give the same, so the sides do not compute alike"


def launches(case: Case, losses: Sequence[float]) -> list[Record]:
    """Eight launches, whose losses are these in turns."""
    return [
        msgspec.structs.replace(
            record, check=ResultCheck(wrong=0, repeatable={"loss": losses[record.launch % len(losses)]})
        )
        for record in launches_of(case, spread(0.1, 8), work=WORK)
    ]


def run_of(path: Path, losses: Mapping[Case, Sequence[float]], **fields: Any) -> Path:
    return write_run(path, {case: launches(case, values) for case, values in losses.items()}, **fields)


def found(compare: Collbench, run: Path, *flags: str) -> tuple[list[str], list[Any]]:
    """Remarks on results that differ, as they are printed, and what the JSON has of them."""
    table = compare(run, "--by", "policy", *flags)
    printed = [line for line in table.out.splitlines() if "results differ" in line]
    document = json.loads(compare(run, "--by", "policy", "--style", "json", *flags).out)
    assert [note for note in document["notes"] if "results differ" in note] == [line.strip("* ") for line in printed]
    return printed, [one for entry in document["comparisons"] for one in entry["results_differ"]]


def test_equal_results_are_not_mentioned(tmp_path: Path, compare: Collbench) -> None:
    assert found(compare, run_of(tmp_path / "run", {BARE: [9.21034], INSIDE: [9.21034]})) == ([], [])


def test_other_results_are_a_finding_once_for_all_measures(tmp_path: Path, compare: Collbench) -> None:
    losses = {BARE: [9.21034], INSIDE: [9.21041]}
    both = losses | {case.having(measure="first"): values for case, values in losses.items()}
    printed, entries = found(compare, run_of(tmp_path / "run", both))
    assert [line.strip("* ") for line in printed] == [
        f"results differ: loss 9.21034 (host), 9.21041 (multi strict); {DIFFER}"]  # fmt: skip
    failing = compare(tmp_path / "run", "--by", "policy", "--fail-on", "faster")
    assert failing.code == 1 and "2 with results that differ" in failing.err
    assert entries == 2 * [{"name": "loss", "base": [9.21034], "other": [9.21041]}]


def test_the_row_is_named_among_several(tmp_path: Path, compare: Collbench) -> None:
    losses: dict[Case, Sequence[float]] = {BARE: [9.21034], INSIDE: [9.21034]}
    losses |= {BARE.having(network="fcn5"): [2.3], INSIDE.having(network="fcn5"): [2.4]}
    (line,), _ = found(compare, run_of(tmp_path / "run", losses))
    assert "results differ, network fcn5: loss 2.3 (host), 2.4 (multi strict);" in line


def test_launches_of_one_side_that_differ_are_a_finding_too(tmp_path: Path, compare: Collbench) -> None:
    (line,), _ = found(compare, run_of(tmp_path / "run", {BARE: [1, 2, 3, 4], INSIDE: [1]}))
    assert "loss 1 and 2 and 3 and 1 more (host), 1 (multi strict)" in line


def test_more_threads_or_other_software_may_give_others(tmp_path: Path, compare: Collbench) -> None:
    run = run_of(tmp_path / "run", {BARE: [1], BARE.having(threads=2): [2]})
    shown = compare(run, "--by", "threads")
    assert shown.code == 0 and "results differ" not in shown.out
    again = run_of(tmp_path / "again", {BARE: [1, 3], BARE.having(threads=2): [2]})
    assert "loss 1 and 3 (1), 2 (2)" in compare(again, "--by", "threads").out
    stacks = [
        image("torch", libraries=(program(version, name="torch", used_by=("train data=made-up",)),)) for version in "12"
    ]
    made = experiment((), images=stacks[:1], environments=stacks[1:])
    other = run_of(tmp_path / "other", {BARE: [1], INSIDE: [2]}, experiment=made)
    refused = compare(other, "--by", "policy")
    assert refused.code == 2 and "library: torch 2 against torch 1" in refused.err
    for flags in (("--by", "library"), ("--by", "policy", "--ignore", "library")):
        shown = compare(other, *flags)
        assert shown.code == 0 and "results differ" not in shown.out, shown.err


def test_a_baseline_and_a_folder_of_launches_keep_them(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {BARE: [1, 2], INSIDE: [1]})
    keep(observe(run), tmp_path / "baseline.json")
    both = gather(tmp_path, [run, run_of(tmp_path / "more", {BARE: [3]})])
    for observed, of_host in ((load(tmp_path / "baseline.json"), {1, 2}), (both, {1, 2, 3})):
        assert {case.where.policy: cell.repeatable["loss"] for case, cell in observed.cells.items()} == {
            "host": of_host, "multi": {1}}  # fmt: skip


def test_cells_that_are_put_together_have_the_results_of_both(tmp_path: Path) -> None:
    one, two = (observe(run_of(tmp_path / str(loss), {BARE: [loss]})).cells for loss in (1.0, 2.0))
    assert joined([(one, 0), (two, 10)])[BARE].repeatable == {"loss": {1.0, 2.0}}


def test_the_page_says_it_in_its_answer_and_below_the_table(tmp_path: Path, here: Collbench) -> None:
    run, out = run_of(tmp_path / "run", {BARE: [9.21034], INSIDE: [9.21041]}), tmp_path / "page.html"
    told = here("report", run, "-o", out)
    assert told.code == 0, told.err
    text = unescape(out.read_text(encoding="utf-8"))
    assert f"train: results differ: loss 9.21034 (host), 9.21041 (multi strict); {DIFFER}" in text
    assert text.count("results differ: loss") == 2


@pytest.mark.parametrize("style", ["table", "csv"])
def test_records_show_them_with_the_digits_that_are_compared(tmp_path: Path, style: str) -> None:
    run = read_run(run_of(tmp_path / "run", {BARE: [9.21034]}))
    if style == "csv":
        assert fields_of(run.records[0])["figures"] == "loss=9.21034"
        return
    printer = new_style(style)
    text = printer.begin(run.manifest) + printer.add(run.records[0]) + printer.end()
    assert "loss" in text and "9.21034" in text


# A run that was stopped before its launches ---------------------------------------------------------------------------

ON_HOST, IN_ONE = made_case(image="openmpi"), made_case("multi", "strict", image="openmpi")


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> str:
    monkeypatch.setattr(sys, "argv", ["collbench", *map(str, words)])
    assert run_command(speaks=True) == 0
    return capsys.readouterr().out


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Eight launches were planned, and the second side has three."""
    return write_run(tmp_path / "my run", {ON_HOST: spread(1e-5, 8), IN_ONE: spread(2e-5, 8)[:3]})


def caution(stopped: Path) -> str:
    return (f"{stopped} was stopped before its 8 launches: 1 cell has fewer (to finish it: "
            f"collbench launch PLAN --resume '{stopped}')")  # fmt: skip


def test_a_launch_that_still_runs_was_not_stopped(
    stopped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_being_written(stopped) and not is_being_written(stopped / "nowhere")
    with locked((stopped / "records.jsonl").open("ab", buffering=0)):
        assert is_being_written(stopped)
        notes = said(capsys, monkeypatch, "compare", "--by", "policy", stopped)
    assert "still being measured" in notes and "was stopped" not in notes
    assert caution(stopped) in said(capsys, monkeypatch, "compare", "--by", "policy", stopped)


@pytest.mark.parametrize("words", [("compare", "--by", "policy"), ("compare", "--by", "policy", "--all"), ("advise",)])
def test_it_is_the_first_caution(
    stopped: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [line for line in said(capsys, monkeypatch, *words, stopped).splitlines() if line.startswith("* ")]
    if words[0] == "advise":
        notes = notes[[caution(stopped) in note for note in notes].index(True) :]
    assert notes[0] == f"* {caution(stopped)}"


def test_programs_are_told_it_too(
    stopped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = json.loads(said(capsys, monkeypatch, "compare", "--by", "policy", "--style", "json", stopped))
    assert compared["notes"][0] == caution(stopped)
    advised = json.loads(said(capsys, monkeypatch, "advise", "--style", "json", stopped))
    assert advised["cautions"][0] == caution(stopped)


def test_a_report_has_it_first_of_what_could_mislead(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, monkeypatch, "report", stopped, "-o", tmp_path / "report.txt")
    lines = (tmp_path / "report.txt").read_text(encoding="utf-8").splitlines()
    cautions = [line.split("  ", 1)[1].strip() for line in lines if line.startswith("what could mislead  ")]
    assert cautions[0] == caution(stopped)


def test_of_two_runs_each_is_named(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_run(tmp_path / "whole", {ON_HOST: spread(1e-5, 8), IN_ONE: spread(2e-5, 8)})
    other = write_run(tmp_path / "other", {ON_HOST: spread(1e-5, 8), IN_ONE: spread(2e-5, 8)[:5]},
                      libraries=(library("MPICH", "4.3"),))  # fmt: skip
    notes = said(capsys, monkeypatch, "compare", whole, stopped)
    assert notes.count("was stopped") == 1 and caution(stopped) in notes
    notes = said(capsys, monkeypatch, "compare", "--ignore", "library", other, stopped)
    assert caution(stopped) in said(capsys, monkeypatch, "advise", whole, stopped, "--ignore", "library")
    assert notes.count("was stopped") == 2 and notes.index(str(other)) < notes.index(caution(stopped))


def test_blocks_before_those_until_decided_are_to_be_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was stopped after 7 of 8 launches, and then given more: these are made first."""
    end = experiment(("openmpi",), launches=20, until="decided")
    stopped = write_run(tmp_path / "my run", {ON_HOST: spread(1e-5, 12), IN_ONE: spread(2e-5, 8)[:7]}, experiment=end,
                    plan={"launches": 8, "until": "launches"})  # fmt: skip
    assert caution(stopped) in said(capsys, monkeypatch, "compare", "--by", "policy", stopped)


def test_a_complete_run_one_that_failed_and_one_until_decided_were_not_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [made_failure(IN_ONE, 7, "a container died")]
    few = experiment(("openmpi",), launches=20, until="decided")
    runs = [
        write_run(tmp_path / "whole", {ON_HOST: spread(1e-5, 8), IN_ONE: spread(2e-5, 8)}),
        write_run(tmp_path / "failed", {ON_HOST: spread(1e-5, 8), IN_ONE: [*spread(2e-5, 8)[:7], *failed]}),
        write_run(tmp_path / "decided", {ON_HOST: spread(1e-5, 8), IN_ONE: spread(2e-5, 8)}, experiment=few),
    ]
    for complete in runs:
        for words in (("compare", "--by", "policy"), ("advise",)):
            assert "was stopped" not in said(capsys, monkeypatch, *words, complete)
