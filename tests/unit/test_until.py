"""Until when an experiment launches, on the fake engine: who is launched again, what is said, and what such a run is.

`launch --until decided` ends where comparisons are decided. `--resume DIR --until decided --launches N` gives a run
more launches, and judges it by bets.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.decided_worlds import TOML, Launch, Takes, clear, launches_of, noisy, taking

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.factors import FACTORS
from collbench.analysis.pairs import within
from collbench.analysis.results import Cell
from collbench.analysis.runs import observe
from collbench.cli import run_command
from collbench.cli.plan import launch_cells
from collbench.cli.until import Decider, changed_keys
from collbench.errors import PackageMissing
from collbench.launch.engines import host
from collbench.launch.engines.fake import FakeEngineSession
from collbench.launch.expansion import expand
from collbench.report.tables import Table
from collbench.schema.case import Case
from collbench.schema.manifest import Experiment, read_manifest
from collbench.schema.plan import Plan, Side, load_launch_plan
from collbench.schema.store import RunWriter, read_run

#: So many blocks that agree decide both sizes, of at most 12.
AGREED = 8

FIXED = TOML.replace("launches = 12", "launches = 7").replace('until = "decided"\n', "")
EIGHT = FIXED.replace("launches = 7", f"launches = {AGREED}")
FOURTEEN = TOML.replace("launches = 12", "launches = 14")
MORE = ("--until", "decided", "--launches", "14")


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Launch:
    return Launch(tmp_path, monkeypatch, capsys)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def experiment_of(run: Path) -> Experiment:
    experiment = read_manifest(run).experiment
    assert experiment is not None
    return experiment


def by_block(run: Path) -> dict[int, set[Case]]:
    cases: dict[int, set[Case]] = {}
    for record in read_run(run).records:
        cases.setdefault(record.launch, set()).add(record.case)
    return cases


# Until decided -------------------------------------------------------------------------------------------------------


def test_what_is_decided_is_not_launched_again(launch: Launch, run: Path) -> None:
    code, err = launch(clear)
    assert code == 0, err
    assert "48 starts" in err
    assert "8 comparisons (4 by policy, 4 by isolation)" in err, "not the other sides of one base with each other"
    assert set(launches_of(run).values()) == {AGREED}, err
    assert experiment_of(run).until == "decided"


def test_open_comparisons_go_on_with_both_sides_up_to_the_limit(launch: Launch, run: Path) -> None:
    """And each block had the cells that the blocks before it left open: whoever goes on decides about it alike."""
    code, err = launch(noisy, toml=FOURTEEN)
    assert code == 0, err
    launches = launches_of(run)
    assert 14 >= launches["multi strict"] == launches["single strict"] > launches["single files"], launches
    kept, expanded = read_run(run), expand(load_launch_plan(run.parent / "plan.toml"))
    decider, cells = Decider(expanded, kept.manifest, kept.records, lambda line, left: None), launch_cells(expanded)
    for block in range(14):
        launched = {cells[record.case] for record in kept.records if record.launch == block}
        wanted = decider(block)
        assert launched == (set(expanded.cells) if wanted is None else set(wanted)), block


def hopeless(place: str, case: Case, noise: float) -> float:
    """Nothing differs, and launches of multi strict differ by half."""
    return float(1000.0 * np.exp(noise * (0.5 if place == "multi strict" else 0.001)))


def test_what_is_too_noisy_for_the_limit_is_given_up(launch: Launch, run: Path) -> None:
    code, err = launch(hopeless, toml=TOML.replace("launches = 12", "launches = 20"))
    assert code == 0, err
    assert "given up" in err and "20 launches" in err
    assert max(launches_of(run).values()) < 20


def fails(place: str, case: Case, noise: float) -> float:
    """multi strict is never measured."""
    if place == "multi strict":
        raise OSError("no such place")
    return clear(place, case, noise)


def test_a_place_that_always_fails_is_given_up_and_the_others_are_decided(launch: Launch, run: Path) -> None:
    code, err = launch(fails)
    assert code == 1
    assert "4 not comparable (bcast 8, single strict vs multi strict: multi strict: failed: OSError" in err
    assert "3 more)" in err
    launches = launches_of(run)
    assert launches["multi strict"] == 3 < launches["single strict"] == AGREED


def test_the_flag_goes_before_the_plan(launch: Launch, run: Path) -> None:
    code, err = launch(clear, "--until", "launches", toml=TOML.replace("12", "7"))
    assert code == 0, err
    assert set(launches_of(run).values()) == {7}
    assert "decided" not in err
    assert experiment_of(run).until == "launches"


def test_where_nothing_is_compared_every_cell_has_all_launches(launch: Launch, run: Path) -> None:
    alone = TOML.replace('"single", "multi"', '"single"').replace('"strict", "files"', '"strict"').replace("12", "7")
    code, err = launch(clear, toml=alone)
    assert code == 0, err
    assert "decides nothing" in err
    assert launches_of(run) == {"single strict": 7}


def test_at_the_limit_it_is_said_what_is_open(launch: Launch) -> None:
    code, err = launch(noisy, toml=TOML.replace("12", "8"))
    assert code == 0, err
    (in_the_end,) = re.findall(r"in the end: (\d) of 8 .*, (\d) not decided", err)
    assert sum(map(int, in_the_end)) == 8 and "0" not in in_the_end


@pytest.mark.parametrize(
    ("takes", "launches", "suggested"), [(noisy, 7, True), (hopeless, 12, False), (clear, 12, False)]
)
def test_more_launches_are_suggested_where_they_would_start_some(
    launch: Launch, run: Path, takes: Takes, launches: int, suggested: bool
) -> None:
    toml = TOML.replace("12", str(launches))
    code, err = launch(takes, toml=toml)
    assert (code, "more launches: " in err) == (0, suggested), err
    before = sum(launches_of(run).values())
    again = ("--resume", str(run), "--until", "decided", "--launches", str(2 * launches))
    code, err = launch(takes, *again, toml=toml)
    assert (code, sum(launches_of(run).values()) > before) == (0, suggested), err


def planned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and output of `collbench plan`."""
    monkeypatch.setattr(sys, "argv", ["collbench", "plan", *words])
    code = run_command(speaks=True)
    said = capsys.readouterr()
    return code, said.out + said.err


def test_plan_says_what_would_be_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(TOML)
    code, said = planned(monkeypatch, capsys, str(path))
    assert code == 0
    assert re.search(r"4 cells, .* 12 launches", said)
    assert "8 comparisons (4 by policy, 4 by isolation)" in said
    assert re.search(r"\nabout .*, if all launches .*\n", said)
    path.write_text(TOML.replace('until = "decided"\n', ""))
    assert planned(monkeypatch, capsys, str(path), "--until", "decided") == (0, said), "by its flag as by the plan"
    fixed = planned(monkeypatch, capsys, str(path))
    assert fixed == planned(monkeypatch, capsys, str(path), "--until", "launches")
    assert "at most" not in fixed[1] and "decides" not in fixed[1]
    path.write_text(TOML.replace("12", "5"))
    code, said = planned(monkeypatch, capsys, str(path))
    assert (code, "launches 5: " in said) == (2, True)


def test_without_scipy_nothing_is_started(launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    code, err = launch(clear)
    assert (code, "SciPy" in err) == (2, True), err
    assert not run.exists()


def wide(place: str, case: Case, noise: float) -> float:
    """A tenth more in the container, where launches differ by 7 %."""
    return float(1000.0 * np.exp(noise * 0.07 + 0.1 if place == "single strict" else noise * 0.001))


def test_the_answer_at_the_end_has_intervals_that_hold_at_any_time(
    launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = TOML.replace('"single", "multi"', '"host", "single"').replace('"strict", "files"', '"strict"')
    (run.parent / "plan.toml").write_text(toml)
    plan = load_launch_plan(run.parent / "plan.toml")
    on_host = FakeEngineSession(taking(wide, plan, []), title="")
    monkeypatch.setattr(host, "ENGINE", replace(host.ENGINE, connect=lambda *_: on_host))
    answers: list[list[Comparison]] = []

    def heard(comparisons: list[Comparison], margin: float) -> list[Table]:
        answers.append(comparisons)
        return []

    monkeypatch.setattr("collbench.cli.launch.verdict_tables", heard)
    assert launch(wide, toml=toml)[0] == 0
    observed = observe(run)
    assert max(len(cell.medians) for cell in observed.cells.values()) > 7
    (answer,) = answers
    expected = compare(within(observed, FACTORS["policy"], frozenset()))
    assert [(one.verdict, one.ratio) for one in answer] == [(one.verdict, one.ratio) for one in expected] != []
    assert all(one.pair.base.until_decided for one in answer)


def test_where_what_judges_is_not_installed_a_launch_ends_with_its_times(
    launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> list[Comparison]:
        raise PackageMissing("SciPy is not installed.")

    printed: list[int] = []

    def heard(cells: dict[Case, Cell]) -> list[Table]:
        printed.append(len(cells))
        return []

    monkeypatch.setattr("collbench.cli.launch.compare", missing)
    monkeypatch.setattr("collbench.cli.launch.launch_tables", heard)
    code, err = launch(clear, toml=FIXED.replace("launches = 7", "launches = 2"))
    assert (code, printed) == (0, [len(observe(run).cells)]), err


# Interrupted ---------------------------------------------------------------------------------------------------------


def test_a_run_stopped_by_hand_is_valid_and_goes_on_as_if_it_had_not_been(launch: Launch, run: Path) -> None:
    assert launch(clear, stop_at=25)[0] == 130
    assert sum(launches_of(run).values()) == 25
    code, err = launch(clear, "--resume", str(run))
    assert code == 0, err
    assert set(launches_of(run).values()) == {AGREED}
    records = read_run(run).records
    assert len({(record.case, record.launch) for record in records}) == len(records)


def test_the_hint_of_an_interrupted_run_is_the_whole_command_whose_flags_the_run_knows(
    launch: Launch, run: Path
) -> None:
    code, err = launch(clear, "--until", "decided", "--launches", "12", toml=FIXED, stop_at=25)
    assert code == 130
    words = shlex.split(err[err.index("continue: ") :].splitlines()[0])[1:]
    plan = str(run.parent / "plan.toml")
    assert words == ["collbench", "launch", plan, "--resume", str(run), "--until", "decided", "--launches", "12"]
    assert launch(clear, "--resume", str(run), toml=FIXED, stop_at=2)[0] == 130
    assert (experiment_of(run).until, experiment_of(run).launches) == ("decided", 12)
    code, err = launch(clear, *words[3:], toml=FIXED)
    assert (code, set(launches_of(run).values())) == (0, {AGREED}), err


def test_a_run_that_is_resumed_has_its_own_plan(launch: Launch, run: Path) -> None:
    """So the command that goes on with it can be typed as it is printed."""
    assert launch(noisy, stop_at=12)[0] == 130
    assert max(launches_of(run).values()) < 12
    code, err = launch(noisy, "--resume", str(run), without_plan=True)
    assert (code, max(launches_of(run).values())) == (0, 12), err
    assert launch(noisy, without_plan=True)[0] == 2, "without a run there is no plan"


# Continued -----------------------------------------------------------------------------------------------------------


def test_a_fixed_number_of_launches_is_continued_until_decided(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=EIGHT)[0] == 0
    before = read_run(run).records
    code, err = launch(noisy, "--resume", str(run), *MORE, toml=EIGHT)
    assert code == 0, err
    launches = launches_of(run)
    assert 8 == launches["single files"] < launches["multi strict"] == launches["single strict"] <= 14, (launches, err)
    after = read_run(run)
    assert after.records[: len(before)] == before
    assert min(record.launch for record in after.records[len(before) :]) == 8
    assert re.search(r" 8 blocks: [1-7] of 8 ", err) and "bets" in err
    assert (experiment_of(run).until, experiment_of(run).launches) == ("decided", 14)
    plan = after.manifest.plan
    assert plan is not None and (plan["until"], plan["launches"]) == ("launches", 8), "where it began"
    assert all(cell.until_decided for cell in observe(run).cells.values())


def test_a_plan_that_says_more_does_without_flags(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=FIXED)[0] == 0
    code, err = launch(noisy, "--resume", str(run), toml=FOURTEEN)
    assert (code, launches_of(run)["multi strict"] > 7) == (0, True), err


def test_what_does_not_continue_a_run_is_refused(launch: Launch, run: Path, golden: Callable[[str, str], None]) -> None:
    said = []

    def refused(takes: Takes, *flags: str, toml: str, resume: bool = True) -> None:
        code, err = launch(takes, *(("--resume", str(run)) if resume else ()), *flags, toml=toml)
        assert code == 2, err
        said.append(err.replace(str(run.parent), "DIR"))

    until = ("--until", "decided")
    refused(clear, *until, toml=FIXED.replace("7", "5"), resume=False)
    assert launch(noisy, toml=FIXED, stop_at=18)[0] == 130
    refused(noisy, *until, toml=FIXED)
    refused(noisy, toml=f'{FIXED}until = "decided"\n')
    assert launch(noisy, "--resume", str(run), toml=FIXED)[0] == 0
    kept = run.joinpath("records.jsonl").read_bytes()
    for flags in (until, (*until, "--launches", "7"), (*until, "--launches", "6"), ("--launches", "9")):
        refused(noisy, *flags, toml=FIXED)
    refused(noisy, toml=FIXED.replace("= 7", "= 9"))
    refused(noisy, *MORE, toml=FIXED.replace('"64K"', '"32K"'))
    assert run.joinpath("records.jsonl").read_bytes() == kept
    run.rename(run.with_name("fixed"))
    assert launch(clear, *until, "--launches", "12", toml=FIXED, stop_at=25)[0] == 130
    refused(clear, "--until", "launches", toml=TOML)
    assert launch(clear, "--resume", str(run), "--launches", "12", toml=FIXED)[0] == 0
    refused(clear, *until, "--launches", "9", toml=FIXED)
    refused(clear, "--launches", "9", toml=FIXED)
    golden("not-continued.txt", "".join(said))


def test_after_a_full_disk_what_is_there_and_what_continues_are_said_once(
    launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, left = RunWriter.append, iter(range(5))

    def full(writer: RunWriter, *record: Any) -> Any:
        if next(left, None) is None:
            monkeypatch.setattr(os, "fsync", no_space)
        return append(writer, *record)

    def no_space(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunWriter, "append", full)
    code, err = launch(clear, toml=FIXED)
    last = err.splitlines()[-1]
    assert (code, last.startswith(f"collbench: --out {run}: {os.strerror(errno.ENOSPC)}. ")) == (1, True), last
    assert " 5 records " in last and last.count(f"collbench show {run}") == 1
    assert last.endswith(f": collbench launch {run.parent / 'plan.toml'} --resume {run}")


def test_of_what_is_decided_nothing_is_measured_and_the_run_stays_as_it_was(launch: Launch, run: Path) -> None:
    twelve = FIXED.replace("7", "12")
    assert launch(clear, toml=twelve)[0] == 0
    kept = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    code, err = launch(clear, "--resume", str(run), "--until", "decided", "--launches", "20", toml=twelve)
    assert (code, "8 of 8" in err) == (0, True), err
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == kept


def test_blocks_that_were_to_be_whole_are_completed_first(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=EIGHT, stop_at=18)[0] == 130
    code, err = launch(noisy, "--resume", str(run), *MORE, toml=EIGHT)
    assert code == 0, err
    launches = launches_of(run)
    assert launches["single files"] == 8 < launches["multi strict"], launches


def hopeless_where_small(place: str, case: Case, noise: float) -> float:
    """In multi strict launches of 8 bytes differ by 70 %, those of 64 KiB by 5 % where a tenth more is to be seen."""
    if place != "multi strict":
        return float(1000.0 * np.exp(noise * 0.001))
    return float(1000.0 * np.exp(noise * 0.7 if case["size"] == 8 else noise * 0.05 + 0.1))


def test_what_was_given_up_for_so_many_is_measured_from_a_new_block_on(launch: Launch, run: Path) -> None:
    code, err = launch(hopeless_where_small)
    before = by_block(run)
    assert (code, "given up" in err, "12 launches" in err) == (0, True, True)
    assert len(before[0]) > len(before[len(before) - 1]), "a block lacks what was given up"
    code, err = launch(hopeless_where_small, "--resume", str(run), "--launches", "60")
    assert code == 0, err
    after = by_block(run)
    assert {block: after[block] for block in before} == before, "a side is never measured long after the other"
    (given_up,) = {case for case in before[0] if case.where.text == "multi strict" and case["size"] == 8}
    assert given_up not in before[len(before) - 1] and given_up in after[len(before)]


def test_a_continued_run_that_was_interrupted_goes_on_as_if_it_had_not_been(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=FIXED)[0] == 0
    assert launch(noisy, "--resume", str(run), *MORE, toml=FIXED, stop_at=3)[0] == 130
    assert launch(noisy, "--resume", str(run), toml=FIXED)[0] == 0, "the run knows how it ends"
    stopped = by_block(run)
    run.rename(run.with_name("stopped"))
    assert launch(noisy, toml=FIXED)[0] == 0
    assert launch(noisy, "--resume", str(run), *MORE, toml=FIXED)[0] == 0
    assert by_block(run) == stopped


def test_a_launch_that_failed_before_has_failed_in_all_its_cases(launch: Launch, run: Path) -> None:
    died: list[int] = []

    def dies_once(place: str, case: Case, noise: float) -> float:
        if place == "multi strict" and not died:
            died.append(1)
            raise OSError("no such place")
        return noisy(place, case, noise)

    assert launch(dies_once, toml=FIXED)[0] == 1
    assert launch(noisy, "--resume", str(run), *MORE, toml=FIXED)[0] == 1
    cells = observe(run).cells.values()
    assert [cell.failed for cell in cells if cell.case.where.text == "multi strict"] == [1, 1]
    assert sum(record.status == "failed" for record in read_run(run).records) == 1


# What of a plan differs from the one that a run was begun with -------------------------------------------------------

BEGUN: dict[str, Any] = {"images": ("openmpi",), "sides": {"base": Side(), "other": Side(variables={"A": "1"})}}

#: Keys of the plan now, and what differs from before.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, tuple[object, object]]]] = {
    "nothing": ({}, {}),
    "a key": ({"launches": 9}, {"launches": (8, 9)}),
    "a variable of a side": (
        {"sides": {"base": Side(), "other": Side(variables={"B": "2"})}},
        {"sides.other.variables.A": ("1", None), "sides.other.variables.B": (None, "2")},
    ),
    "an empty variable": (
        {"sides": {"base": Side(variables={"C": ""}), "other": Side(variables={"A": "1"})}},
        {"sides.base.variables.C": (None, "")},
    ),
    "another side": (
        {"sides": {"base": Side(libraries=("/x.so",)), "new": Side()}},
        {"sides": (["base", "other"], ["base", "new"])},
    ),
    "a parameter of a program": (
        {"benchmarks": ("stream", {"name": "hpl", "n": 5})},
        {"benchmarks": ((), None), "benchmarks[1]": (None, "stream"), "benchmarks[2].name": (None, "hpl"),
         "benchmarks[2].n": (None, 5)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_keys_that_differ_are_named_to_the_last_value(what: str) -> None:
    keys, expected = CHANGES[what]
    before, now = Plan(**BEGUN), Plan(**{**BEGUN, **keys})
    assert changed_keys(before, now) == expected
    assert bool(expected) == (before != now)
