"""Cells of runs: what records say, what launches show besides a median, runs that were stopped or stand twice."""

from __future__ import annotations

import gc
import json
import math
import shutil
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.runs import read_run
from tests.unit import made_runs
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import launches_of, program, program_case, program_record
from tests.unit.made_runs import Entry, library, made_case, made_failure, made_record, spread, write_launches, write_run

from collbench.analysis.compare import Comparison, Reason
from collbench.analysis.compare import compare as compared
from collbench.analysis.factors import find_factor
from collbench.analysis.launches import Slow, drift, serial, slow
from collbench.analysis.pairs import across, within
from collbench.analysis.results import Cell, cells_of, in_turns, joined, without_collector
from collbench.analysis.runs import gather, load_baseline, observe, save_baseline, shortage
from collbench.errors import RunReadError
from collbench.report import new_style
from collbench.report.cells import launch_tables, tables
from collbench.report.styles import fields_of
from collbench.report.verdict import slow_text
from collbench.run.turns import _trimmed
from collbench.schema.case import Case
from collbench.schema.files import is_being_written, locked
from collbench.schema.record import Duet, Record, ResultCheck, Samples, Slice, Work
from collbench.schema.world import TRIMMED

Golden = Callable[[str, str], None]

US = 1e-6
CASE, SMALL, LARGE = made_case(), made_case(size=8), made_case(size=4096)
HOST, MULTI = made_case("host", image="a"), made_case("multi", "strict", image="a")


def cell_of(records: Sequence[Record]) -> Cell:
    return cells_of(records, cases=[CASE])[CASE]


@pytest.mark.parametrize(
    ("cells", "short"),
    [([(3, 0, 0)], 0), ([(1, 2, 0), (0, 0, 3), (1, 1, 1)], 0), ([(2, 0, 0)], 1), ([(1, 1, 0), (0, 1, 1), (3, 0, 0)], 2),
     ([], 0)],
)  # fmt: skip
def test_launches_that_failed_or_were_skipped_are_not_missing(cells: list[tuple[int, int, int]], short: int) -> None:
    """Each cell has so many launches that measured, failed, and skipped it."""
    made = [
        cell_of([*(made_record(CASE, launch, US) for launch in range(measured)),
                 *(made_failure(CASE, 100 + number, "broken") for number in range(failed)),
                 *(made_failure(CASE, 200 + number, "none", "skipped") for number in range(skipped))])
        for measured, failed, skipped in cells
    ]  # fmt: skip
    lacking = shortage(Path("none"), made_runs.made_manifest(experiment=made_runs.experiment(("a",), launches=3)), made)
    assert (lacking.cells, lacking.planned, lacking.growing) == (short, 3, False)


def test_a_launch_that_failed_has_failed_at_every_size_of_its_cell(tmp_path: Path) -> None:
    """It is one record: of the first case that it did not measure."""
    elsewhere = made_case("single", "strict", size=8)
    cells = observe(write_run(tmp_path / "run", {
        SMALL: [1e-6, "a node died", 1e-6, "a node died"], LARGE: [2e-6, None, "too late", None],
        elsewhere: [1e-6, 1e-6, 1e-6, None],
    })).cells  # fmt: skip
    assert [(len(cells[case].medians), cells[case].failed) for case in (SMALL, LARGE)] == [(2, 2), (1, 3)]
    assert (cells[SMALL].reasons, cells[LARGE].reasons) == ({"a node died"}, {"a node died", "too late"})
    assert cells[elsewhere].failed == 0


def test_a_wrong_result_is_that_of_its_case_alone() -> None:
    """A size that the launch did not come to has failed with it, and its other launches still compare."""
    wrong = msgspec.structs.replace(made_failure(SMALL, 1, "wrong result"), check=ResultCheck(wrong=3))
    cells = cells_of([made_record(SMALL, 0, US), made_record(LARGE, 0, US), wrong])
    assert [(cells[case].failed, cells[case].wrong) for case in (SMALL, LARGE)] == [(1, 1), (1, 0)]


def test_the_processor_time_of_an_execution_counts_its_warm_up_too() -> None:
    """Nine samples and one warm-up took ten times half a second."""
    (cell,) = cells_of([program_record(program_case(), 0, 1.0, cpu=0.5)]).values()
    assert cell.cpu == {0: pytest.approx((0.5, 1.0))}


def test_the_coarser_clock_and_the_shortest_burst_decide_what_the_clock_leaves_open() -> None:
    for steps in ((1e-8, 4e-8), (4e-8, 1e-8)):
        first, second = ({CASE: made_runs.made_cell(CASE, [US], clock_step=step)} for step in steps)
        assert joined([(first, 0), (second, 1)])[CASE].half_step == 2e-8
    records = [made_record(CASE, launch, US, burst=burst) for launch, burst in enumerate((20, 10))]
    for number, burst in ((0, 1), (1, 20), (2, 10)):
        assert cell_of(records[:number]).of_origin(clock_step=8e-9).half_step == pytest.approx(4e-9 / burst)


def test_the_clock_moves_a_time_of_a_duet_by_less_than_a_median() -> None:
    """Times of 200 to 210 ns on a clock of 10 ns, which a slice takes the trimmed mean of; one launch alone is not."""
    draw = np.random.default_rng(1)
    for true in np.linspace(200, 210, 21):
        began = draw.uniform(0, 1e6, 20_000)
        shown = np.floor((began + true) / 10) * 10 - np.floor(began / 10) * 10
        mean = _trimmed(shown.astype(np.int64))
        assert mean is not None and abs(mean * 1e9 - true) <= TRIMMED * 10 + 0.1
    duet = Duet(worlds=2, started=0, seconds=US, slices=(), checked=())
    records = [made_record(CASE, 0, US, duet=duet), made_record(CASE, 1, US)]
    for number, step in ((1, TRIMMED * 1e-8), (2, 5e-9)):
        assert cell_of(records[:number]).of_origin(clock_step=1e-8).half_step == pytest.approx(step)


# What records say beside their times ----------------------------------------------------------------------------------


def test_records_that_say_the_same_share_it() -> None:
    records = [made_record(case, n, US, notes=("a",)) for n in range(3) for case in (SMALL, LARGE)]
    small, large = cells_of(records).values()
    assert small.results is large.results and len(small.results.facts) == 2


def test_what_one_cell_notes_no_other_has_noted_and_several_runs_keep_what_each_noted() -> None:
    records = [made_record(case, 0, US, notes=("a",), contended=True) for case in (SMALL, LARGE)]
    records += [made_record(SMALL, launch, US, notes=(note,), contended=True, align="barrier")
                for launch, note in ((1, "b"), (2, "c"))]  # fmt: skip
    small, large = cells_of(records).values()
    assert (small.notes, small.contended, len(small.how)) == ({"a", "b", "c"}, {0, 1, 2}, 2)
    assert (large.notes, large.contended, len(large.how)) == ({"a"}, {0}, 1)
    first, second = (cells_of(made_record(CASE, n, n + US, notes=(note,)) for n, note in enumerate(notes))
                     for notes in ("ab", "c"))  # fmt: skip
    cell = joined([(first, 0), (second, 2)])[CASE]
    assert (cell.launches, cell.medians, cell.notes) == ([0, 1, 2], [US, 1 + US, US], {"a", "b", "c"})
    assert first[CASE].notes == {"a", "b"}


def test_a_launch_counts_once_and_one_that_was_lost_and_measured_later_has_not_failed() -> None:
    """In the order of launches, whatever the order of records."""
    cell = cell_of([
        made_failure(CASE, 0, "lost: node n1"), made_record(CASE, 2, 3 * US), made_record(CASE, 0, US),
        made_record(CASE, 2, 9 * US), made_failure(CASE, 1, "lost: node n2"), made_failure(CASE, 1, "lost: node n3"),
    ])  # fmt: skip
    assert (cell.launches, cell.medians, cell.repeated) == ([0, 2], [US, 3 * US], 1)
    assert (cell.failed, cell.lost, cell.reasons) == (1, 1, {"lost: node n3"})


# The garbage collector while a run is read ----------------------------------------------------------------------------


class Watched(dict[Case, Cell]):
    """Cells that note whether the collector is on when they are asked for."""

    def __init__(self) -> None:
        self.during: list[bool] = []

    def items(self) -> ItemsView[Case, Cell]:  # type: ignore[override]
        self.during.append(gc.isenabled())
        return super().items()


def test_it_is_paused_while_records_are_read_and_a_table_is_made() -> None:
    """It goes on after a line that is no record; who had paused it goes on without."""
    during: list[bool] = []

    def records() -> Iterator[Record]:
        during.append(gc.isenabled())
        yield made_record(CASE, 0, 1e-6)
        raise RunReadError("line 2")

    with pytest.raises(RunReadError):
        cells_of(records())
    assert (during, gc.isenabled()) == ([False], True)
    cells = Watched()
    launch_tables(cells)
    assert (cells.during, gc.isenabled()) == ([False], True)
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


# What launches show besides a median ----------------------------------------------------------------------------------


def rising(first: float, share: float, n: int = 10) -> list[float]:
    return [first * (1 + share * i / (n - 1)) for i in range(n)]


def test_a_drift_that_can_be_all_of_the_difference_is_named() -> None:
    assert drift(rising(1.0, 0.07), rising(1.07, 0.07)) == pytest.approx(0.07, rel=0.1)
    assert drift(spread(1.0), rising(1.07, 0.07)) is not None  # one side is enough
    assert drift(rising(1.07, -0.07), rising(1.0, -0.07)) is not None  # a machine that becomes faster
    assert drift(rising(1.0, 0.07), rising(2.0, 0.07)) is drift(spread(1.0), spread(1.1)) is None  # far beyond it
    draw = np.random.default_rng(3)
    without_trend = (np.exp(draw.normal(0, 0.05, (2, 10))).tolist() for _ in range(400))
    assert np.mean([drift(*sides) is not None for sides in without_trend]) <= 0.07


STEADY = spread(1e-5, 60, 0.004)


def jumping(every: int) -> list[float]:
    """Every so many launches one takes twice the time."""
    return [time * (2.0 if n % every == 0 else 1.0) for n, time in enumerate(STEADY)]


def test_launches_of_two_kinds_are_counted_on_both_sides(tmp_path: Path) -> None:
    jumps = jumping(3)
    kinds = slow(STEADY, jumps)
    assert kinds is not None and (kinds.base, kinds.other, kinds.launches) == (0, 20, (60, 60))
    assert slow(jumps, jumps) is None and slow(STEADY, STEADY) is None
    assert slow(STEADY, [*jumps[:1], *STEADY[1:]]) is None  # one of sixty is chance
    longer, longer_jumps = ([1.3 * time for time in times] for times in (STEADY, jumps))
    assert slow(STEADY, longer, one_median=False) is None  # all of a side, so none of it is slow for that side
    assert slow(STEADY, longer_jumps, one_median=False) == kinds
    comparison = one_cell(tmp_path / "run", STEADY, jumping(6))
    assert (comparison.verdict, comparison.slow) == ("same", Slow(0, 10, (60, 60)))
    assert comparison.slow is not None and slow_text(comparison.slow) in tables([comparison])[0].rows[0][-1]


def test_launches_with_a_memory_have_a_high_score_and_others_have_not() -> None:
    draw, scores = np.random.default_rng(4), {}
    for memory in (0.0, 0.6):
        each = []
        for _ in range(200):
            sides = draw.normal(size=(2, 25))
            for i in range(1, 25):
                sides[:, i] = memory * sides[:, i - 1] + (1 - memory**2) ** 0.5 * sides[:, i]
            one, other = np.exp(0.03 * sides).tolist()
            each.append(serial(one, other, True) or 0.0)
        scores[memory] = np.array(each)
    assert np.mean(scores[0.0] > 1.645) <= 0.07 and np.mean(scores[0.6] > 1.645) >= 0.8
    assert serial(spread(1.0, 9), spread(1.0, 9), True) is None


def test_the_drift_of_two_runs_is_that_of_their_launches_in_whatever_order_they_were_recorded(tmp_path: Path) -> None:
    """A launch that was lost is repeated, and recorded, after later ones."""
    for number, order in enumerate((range(10), (0, 3, 6, 9, 1, 4, 7, 2, 5, 8))):
        times = {"a": rising(1e-5, 0.07), "b": rising(1.07e-5, 0.07)}
        base, other = (observe(write_run(tmp_path / f"{name}{number}", {
            HOST: [made_record(HOST, n, of_side[n]) for n in order]})) for name, of_side in times.items())  # fmt: skip
        [comparison] = compared(across(base, other, None, frozenset()), in_blocks=False)
        assert list(base.cells[HOST].launches) == list(other.cells[HOST].launches) == [*range(10)]
        assert comparison.verdict == "unclear"
        assert comparison.why == Reason("drift", (pytest.approx(0.07, abs=0.005),))


def one_cell(path: Path, base: Sequence[Entry], other: Sequence[Entry]) -> Comparison:
    observed = observe(write_run(path, {HOST: base, MULTI: other}))
    [comparison] = compared(within(observed, find_factor("policy"), frozenset()))
    return comparison


def by_barrier(times: Sequence[float], *numbers: int) -> list[Entry]:
    """Launches on the host, of which these fell back to a barrier."""
    return [
        made_record(HOST, n, time, align="barrier" if n in numbers else "roundtime") for n, time in enumerate(times)
    ]


def test_launches_that_were_measured_in_another_way_leave_the_others_if_these_are_enough(tmp_path: Path) -> None:
    times = spread(10e-6, 25)
    once = one_cell(tmp_path / "run", by_barrier(times, 3), [2 * time for time in times])
    assert (once.verdict, once.launches, once.left_out) == ("slower", (24, 24), 1)
    assert once.ratio is not None and once.ratio.value == pytest.approx(2.0)
    assert any(note.endswith(": 1") for note in tables([once])[0].notes)
    four, half = (one_cell(tmp_path / str(number), by_barrier(spread(1e-5), *range(number)), spread(1e-5))
                  for number in (4, 5))  # fmt: skip
    assert (four.verdict, four.launches) == ("same", (6, 6))
    differing = (("align", "barrier and roundtime", "roundtime"),)
    assert (half.verdict, half.why) == ("not comparable", Reason("measured differently", differing))


@pytest.mark.parametrize(
    ("factor", "engines", "sides"),
    [("policy", ["docker"], {"multi strict vs host (docker)"}), ("engine", ["docker"], {"docker multi strict vs host"}),
     ("image", ["docker"], {"b vs a", "b vs a (multi strict)"}),
     ("image", ["docker", "podman"], {"b vs a", "b vs a (docker multi strict)", "b vs a (podman multi strict)"})],
)  # fmt: skip
def test_sides_of_different_engines_name_it(tmp_path: Path, factor: str, engines: list[str], sides: set[str]) -> None:
    cases = [case for image in ("a", "b") for case in (HOST.having(image=image), *(
        MULTI.having(image=image, engine=engine) for engine in engines))]  # fmt: skip
    observed = observe(write_run(tmp_path / "run", dict.fromkeys(cases, spread(1e-5))))
    ignored = frozenset({"engine"} if factor == "policy" else ())
    [table] = tables(compared(within(observed, find_factor(factor), ignored)))
    assert {row[table.columns.index("sides")] for row in table.rows} == sides


# The same launches are refused where they would count twice, under whatever names -------------------------------------

TWO_SIDES = {made_case(policy, image="a"): spread(centre) for policy, centre in (("host", 1e-5), ("single", 2e-5))}


def refuse(here: Collbench, arguments: tuple[object, ...], *folders: object) -> None:
    """It ends with 2, prints nothing, and the message names these folders."""
    refused = here(*arguments)
    assert (refused.code, refused.out) == (2, "") and "same launches" in refused.err, arguments
    assert all(str(folder) in refused.err for folder in folders), refused.err


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", TWO_SIDES)


def test_a_run_that_is_named_twice_or_copied(here: Collbench, run: Path, tmp_path: Path) -> None:
    """By a link, by a copy, and by a copy that was gone on with; in a history too."""
    (tmp_path / "link").symlink_to(run)
    copy, continued = (shutil.copytree(run, tmp_path / name) for name in ("copy", "continued"))
    lines = (continued / "records.jsonl").read_bytes().splitlines(keepends=True)
    (continued / "records.jsonl").write_bytes(b"".join(lines[:4]))
    for command, *more in (("advise",), ("model",), ("report", "-o", tmp_path / "page.html")):
        for again in (run, tmp_path / "link", copy, continued):
            refuse(here, (command, run, again, *more), run, again)
    assert not (tmp_path / "page.html").exists()
    refuse(here, ("compare", run, copy), run, copy)
    assert here("compare", run, made_runs.twin(run)).code == 0, "another run that measured the same"
    folder = write_launches(tmp_path / "folder", TWO_SIDES)
    refuse(here, ("compare", folder, folder / "003"), f"{folder / '003'} (in {folder}) and {folder / '003'} ")
    nights = [shutil.copytree(run, tmp_path / "nights" / name) for name in ("n1", "n2")]
    refuse(here, ("history", tmp_path / "nights"), *nights)


def test_a_run_is_not_compared_with_its_own_baseline(here: Collbench, run: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert here("compare", run, "--save-baseline", kept).code == 0
    refuse(here, ("compare", run, "--baseline", kept), run, kept)
    refuse(here, ("compare", shutil.copytree(run, tmp_path / "copy"), "--baseline", kept), kept)
    assert here("compare", made_runs.twin(run), "--baseline", kept).code == 0, "another run that measured the same"


def test_copies_of_one_launch_are_no_launches(here: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        first = write_run(tmp_path / name / "l1", {case: medians[:1] for case, medians in TWO_SIDES.items()})
        for number in range(2, 8):
            shutil.copytree(first, first.with_name(f"l{number}"))
    for command, of, *more in (("compare", "a", "b"), ("compare", "b", "--by", "policy"), ("advise", "a"),
                               ("report", "a"), ("model", "a")):  # fmt: skip
        refuse(here, (command, of, *more), f"{of}/l1 (in {of})", f"{of}/l2 (in {of})")


def test_runs_begun_at_once_by_one_command_differ_by_what_they_measured(here: Collbench, tmp_path: Path) -> None:
    """As on two machines; a first launch that failed in the same way is no measurement."""
    runs = [write_run(tmp_path / name, {CASE: ["died", *spread(centre)]}, command=("collbench", "run"))
            for name, centre in (("a", 1e-5), ("b", 2e-5))]  # fmt: skip
    assert here("compare", *runs).code == 0


# Results that must come out equal -------------------------------------------------------------------------------------

BARE = Case(workload="train", what={"network": "lstm", "measure": "batch"},
            how={"threads": 1, "data": "made-up"}).having(image="torch")  # fmt: skip
INSIDE = BARE.having(engine="docker", policy="multi", isolation="strict")


Losses = Mapping[Case, Sequence[float]]


def run_of(path: Path, losses: Losses, **fields: Any) -> Path:
    """Eight launches of each case, whose losses are these in turns."""
    cells: dict[Case, list[Entry]] = {}
    for case, of in losses.items():
        checks = (ResultCheck(wrong=0, repeatable={"loss": of[n % len(of)]}) for n in range(8))
        records = launches_of(case, spread(0.1, 8), work=Work(amount=1, unit="batches"))
        cells[case] = [*map(lambda record, check: msgspec.structs.replace(record, check=check), records, checks)]
    return write_run(path, cells, **fields)


def remarks(compare: Collbench, run: Path, *flags: str) -> list[str]:
    """Those on results that differ, as they are printed and as programs get them."""
    printed = [line.strip("* ") for line in compare(run, *flags).out.splitlines() if "results differ" in line]
    notes = json.loads(compare(run, "--style", "json", *flags).out)["notes"]
    assert [note for note in notes if "results differ" in note] == printed
    return printed


def test_other_results_are_a_finding_once_for_all_measures(tmp_path: Path, compare: Collbench, here: Collbench) -> None:
    losses = {BARE: [9.21034], INSIDE: [9.21041]}
    run = run_of(tmp_path / "run", losses | {case.having(measure="first"): loss for case, loss in losses.items()})
    (remark,) = remarks(compare, run, "--by", "policy")
    assert "loss 9.21034 (host), 9.21041 (multi strict)" in remark
    entries = json.loads(compare(run, "--by", "policy", "--style", "json").out)["comparisons"]
    differing = {"name": "loss", "base": [9.21034], "other": [9.21041], "between_sides": True}
    assert [one["results_differ"] for one in entries] == 2 * [[differing]]
    assert compare(run, "--by", "policy", "--fail-on", "faster").code == 1
    page = tmp_path / "page.html"
    assert here("report", run, "-o", page).code == 0
    assert unescape(page.read_text(encoding="utf-8")).count(remark) == 2, "in its answer and below the table"


@pytest.mark.parametrize(
    ("losses", "remark"),
    [({BARE: [9.21034], INSIDE: [9.21034]}, None),
     ({BARE: [9.21034], INSIDE: [9.21034], BARE.having(network="fcn5"): [2.3], INSIDE.having(network="fcn5"): [2.4]},
      "network fcn5: loss 2.3 (host), 2.4 (multi strict);"),
     ({BARE: [1, 2, 3, 4], INSIDE: [1]}, "loss 1 and 2 and 3 and 1 more (host), 1 (multi strict)")],
)  # fmt: skip
def test_which_results_differ(tmp_path: Path, compare: Collbench, losses: Losses, remark: str | None) -> None:
    """Of several rows the one is named; launches of one side that differ are a finding too."""
    found = remarks(compare, run_of(tmp_path / "run", losses), "--by", "policy")
    assert len(found) == (remark is not None) and all(str(remark) in line for line in found)


@pytest.mark.parametrize(("other", "code"), [([1], 0), ([1, 2], 0), ([3], 1), ([3, 4], 1)])
def test_results_that_vary_on_both_sides_are_no_difference_of_them(
    tmp_path: Path, compare: Collbench, other: list[float], code: int
) -> None:
    run = run_of(tmp_path / "run", {BARE: [1, 2], INSIDE: other})
    assert len(remarks(compare, run, "--by", "policy")) == 1
    (entry,) = json.loads(compare(run, "--by", "policy", "--style", "json").out)["comparisons"]
    assert [one["between_sides"] for one in entry["results_differ"]] == [code == 1]
    assert compare(run, "--by", "policy", "--fail-on", "slower").code == code


def test_more_threads_or_other_software_may_give_others(tmp_path: Path, compare: Collbench) -> None:
    run = run_of(tmp_path / "run", {BARE: [1], BARE.having(threads=2): [2]})
    assert remarks(compare, run, "--by", "threads") == []
    again = run_of(tmp_path / "again", {BARE: [1, 3], BARE.having(threads=2): [2]})
    assert "loss 1 and 3 (1), 2 (2)" in compare(again, "--by", "threads").out
    stacks = [made_runs.image("torch", libraries=(program(version, name="torch", used_by=("train data=made-up",)),))
              for version in "12"]  # fmt: skip
    made = made_runs.experiment((), images=stacks[:1], environments=stacks[1:])
    other = run_of(tmp_path / "other", {BARE: [1], INSIDE: [2]}, experiment=made)
    refused = compare(other, "--by", "policy")
    assert refused.code == 2 and "library: torch 2 against torch 1" in refused.err
    assert remarks(compare, other, "--by", "library") == []
    assert remarks(compare, other, "--by", "policy", "--ignore", "library") == []


def test_a_baseline_and_launches_that_are_put_together_keep_them(tmp_path: Path) -> None:
    run, more = run_of(tmp_path / "run", {BARE: [1, 2], INSIDE: [1]}), run_of(tmp_path / "more", {BARE: [3]})
    save_baseline(observe(run), tmp_path / "baseline.json")
    for observed, of_host in (
        (load_baseline(tmp_path / "baseline.json"), {1, 2}),
        (gather(tmp_path, [run, more]), {1, 2, 3}),
    ):
        assert {case.where.policy: cell.repeatable["loss"] for case, cell in observed.cells.items()} == {
            "host": of_host, "multi": {1}}  # fmt: skip


def test_records_show_them_with_the_digits_that_are_compared(tmp_path: Path) -> None:
    run = read_run(run_of(tmp_path / "run", {BARE: [9.21034]}))
    assert fields_of(run.records[0])["figures"] == "loss=9.21034"
    printer = new_style("table")
    text = printer.begin(run.manifest) + printer.add(run.records[0]) + printer.end()
    assert "loss" in text and "9.21034" in text


# A run that was stopped before its launches ---------------------------------------------------------------------------

ON_HOST, IN_ONE = made_case(image="openmpi"), made_case("multi", "strict", image="openmpi")


def with_launches(path: Path, *of_one: Entry, of_host: int = 8, **fields: Any) -> Path:
    return write_run(path, {ON_HOST: spread(1e-5, of_host), IN_ONE: of_one}, **fields)


EIGHT = spread(2e-5, 8)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Eight launches were planned, and the second side has three."""
    return with_launches(tmp_path / "my run", *EIGHT[:3])


def way_on(stopped: Path) -> str:
    """What a caution on a run that was stopped ends with."""
    return f"collbench launch PLAN --resume '{stopped}')"


def test_a_launch_that_still_runs_was_not_stopped(stopped: Path, compare: Collbench) -> None:
    assert not is_being_written(stopped) and not is_being_written(stopped / "nowhere")
    with locked((stopped / "records.jsonl").open("ab", buffering=0)):
        assert is_being_written(stopped)
        assert " PLAN " not in compare("--by", "policy", stopped).out
    assert way_on(stopped) in compare("--by", "policy", stopped).out


def test_it_is_the_first_caution_everywhere(stopped: Path, here: Collbench, tmp_path: Path) -> None:
    for more in ((), ("--all",)):
        out = here("compare", "--by", "policy", *more, stopped).out
        assert next(line for line in out.splitlines() if line.startswith("* ")).endswith(way_on(stopped))
    for key, words in (("notes", ("compare", "--by", "policy")), ("cautions", ("advise",))):
        caution = json.loads(here(*words, "--style", "json", stopped).out)[key][0]
        assert caution.endswith(way_on(stopped)) and f"* {caution}\n" in here(*words, stopped).out
    assert here("report", stopped, "-o", tmp_path / "report.txt").code == 0
    lines = (tmp_path / "report.txt").read_text(encoding="utf-8").splitlines()
    assert next(line for line in lines if line.startswith("what could mislead  ")).endswith(way_on(stopped))


def test_of_two_runs_each_is_named(stopped: Path, here: Collbench, tmp_path: Path) -> None:
    whole = with_launches(tmp_path / "whole", *EIGHT)
    other = with_launches(tmp_path / "other", *EIGHT[:5], libraries=(library("MPICH", "4.3"),))
    out = here("compare", whole, stopped).out
    assert out.count(" PLAN ") == 1 and way_on(stopped) in out
    assert way_on(stopped) in here("advise", whole, stopped, "--ignore", "library").out
    out = here("compare", "--ignore", "library", other, stopped).out
    assert out.count(" PLAN ") == 2 and out.index(str(other)) < out.index(way_on(stopped))


def test_which_runs_were_stopped(here: Collbench, tmp_path: Path) -> None:
    """Blocks before those until decided are to be whole: a run stopped after 7 of 8 launches, and then given more."""
    few = made_runs.experiment(("openmpi",), launches=20, until="decided")
    given_more = with_launches(tmp_path / "my run", *EIGHT[:7], of_host=12, experiment=few,
                               plan={"launches": 8, "until": "launches"})  # fmt: skip
    assert way_on(given_more) in here("compare", "--by", "policy", given_more).out
    failed = with_launches(tmp_path / "failed", *EIGHT[:7], made_failure(IN_ONE, 7, "a container died"))
    whole = with_launches(tmp_path / "whole", *EIGHT)
    for complete in (whole, with_launches(tmp_path / "decided", *EIGHT, experiment=few), failed):
        for words in (("compare", "--by", "policy"), ("advise",)):
            assert " PLAN " not in here(*words, complete).out


# Cautions and notes in words ------------------------------------------------------------------------------------------


def test_notes_on_launches_in_words(stopped: Path, here: Collbench, tmp_path: Path, golden: Golden) -> None:
    """Samples that began late, several sizes, launches by another gate, a run that still runs or was stopped."""
    times = spread(1e-5, 25)
    late = [made_record(MULTI, n, time, samples=Samples(n=200, invalid=190, warmup=5)) for n, time in enumerate(times)]
    sizes = dict.fromkeys((case.having(size=size) for size in (8, 16, 32) for case in (HOST, MULTI)), times)
    made: dict[str, Mapping[Case, Sequence[Entry]]] = {
        "late": {HOST: times, MULTI: late}, "sizes": sizes, "one size": {HOST: times, MULTI: times},
        "another gate": {HOST: by_barrier(times, 3), MULTI: times},
    }  # fmt: skip
    for name, cells in made.items():
        write_run(tmp_path / name, cells)
    run_of(tmp_path / "other results", {BARE: [9.21034], INSIDE: [9.21041]})
    names = ("late", "sizes", "one size", "another gate", "other results", stopped.name)
    shown = [f"{name}\n{here('compare', '--by', 'policy', tmp_path / name).out}" for name in names]
    with locked((stopped / "records.jsonl").open("ab", buffering=0)):
        shown.append(f"{stopped.name}, still being written\n{here('compare', '--by', 'policy', stopped).out}")
    runs = [write_launches(tmp_path / held.name, {CASE: spread(time)}, libraries=(held,))
            for time, held in ((1e-5, library()), (2e-5, library("MPICH", "5.0.2")))]  # fmt: skip
    for flags, cautions in (((), 1), (("--in-blocks",), 0)):  # of runs one after the other
        shown.append(f"{' '.join(('advise both', *flags))}\n{here('advise', *runs, *flags).out}")
        assert len(json.loads(here("advise", *runs, *flags, "--style", "json").out)["cautions"]) == cautions
    golden("results-notes.txt", "\n".join(shown).replace(f"{tmp_path}/", ""))


@pytest.mark.parametrize(
    ("slow", "on_other"),
    [(Slow(2, 2, (10, 5)), True), (Slow(2, 2, (5, 10)), False), (Slow(1, 1, (9, 9)), False)],
)
def test_the_side_with_the_larger_share_of_slow_launches(slow: Slow, on_other: bool) -> None:
    assert slow.on_other is on_other


def test_what_the_slices_of_a_launch_show() -> None:
    """Those that follow one of their own world, and second halves; of slices that are valid and took time."""

    def turn(place: int, seconds: float, halves: tuple[float, float], valid: bool = True) -> Slice:
        return Slice(start=0.0, place=place, n=9, seconds=seconds, halves=halves, asleep=0.0, slept=1.0, valid=valid)

    slices = (turn(0, 1.0, (1.0, 2.0)), turn(1, 2.0, (0.0, 3.0)), turn(0, 4.0, (2.0, 4.0)),
              turn(0, 9.0, (1.0, 1.0), valid=False), turn(1, 0.0, (1.0, 9.0)))  # fmt: skip
    shown = in_turns(Duet(worlds=2, started=1, seconds=1.0, slices=slices))
    assert shown.started == 1
    assert shown[1:] == pytest.approx((math.log(2), math.log(2)))
