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
from unittest.mock import Mock

import numpy as np
import pytest
from tests.runs import read_run
from tests.unit.conftest import Collbench
from tests.unit.decided_worlds import TOML, Launch, Played, Takes, clear, launches_of, noisy, taking
from tests.unit.fake_engine import FakeEngineSession

from collbench.analysis.compare import compare
from collbench.analysis.factors import FACTORS
from collbench.analysis.pairs import within
from collbench.analysis.planning import OpenAtPlace
from collbench.analysis.runs import observe
from collbench.cli import until
from collbench.cli.plan import launch_cells
from collbench.cli.until import Decider, changed_keys
from collbench.errors import PackageMissing
from collbench.launch.campaign import finished
from collbench.launch.collect import placed_case
from collbench.launch.engines import host
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.machine.facts import Core, Topology
from collbench.schema.case import Case
from collbench.schema.manifest import Experiment, read_manifest
from collbench.schema.plan import Plan, Side, load_launch_plan
from collbench.schema.record import Record
from collbench.schema.store import RunWriter

#: So many blocks that agree decide two sizes, or three.
AGREED = 8

FIXED = TOML.replace("launches = 12", "launches = 7").replace('until = "decided"\n', "")
EIGHT = FIXED.replace("launches = 7", f"launches = {AGREED}")
FOURTEEN = TOML.replace("launches = 12", "launches = 14")
MORE = ("--until", "decided", "--launches", "14")
THREE_SIZES = FOURTEEN.replace('["8", "64K"]', '["8", "1K", "64K"]')


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


def test_what_is_decided_is_not_launched_again_unless_the_flag_says_otherwise(launch: Launch, run: Path) -> None:
    code, err = launch(clear)
    assert (code, experiment_of(run).until, set(launches_of(run).values())) == (0, "decided", {AGREED}), err
    assert "48 starts" in err
    assert "8 comparisons (4 by policy, 4 by isolation)" in err, "not the other sides of one base with each other"
    run.rename(run.with_name("decided"))
    code, err = launch(clear, "--until", "launches", toml=TOML.replace("12", "7"))
    assert (code, experiment_of(run).until, set(launches_of(run).values())) == (0, "launches", {7}), err
    assert "decided" not in err.replace(str(run.parent), "")


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


def fails(place: str, case: Case, noise: float) -> float:
    """multi strict is never measured."""
    if place == "multi strict":
        raise OSError("no such place")
    return clear(place, case, noise)


def test_a_place_that_always_fails_is_given_up_and_the_others_are_decided(launch: Launch, run: Path) -> None:
    """Each of its launches has a failed record of each case."""
    code, err = launch(fails, toml=THREE_SIZES)
    launches = launches_of(run)
    assert (code, launches["multi strict"], launches["single strict"]) == (1, 3, AGREED), err
    assert re.search(r" 6 not comparable \(bcast 8, single strict vs multi strict: .*OSError.* 5 more\)", err)
    failed = [record for record in read_run(run).records if record.status == "failed"]
    assert sorted((record.launch, record.case["size"]) for record in failed) == [
        (block, size) for block in range(3) for size in (8, 1024, 1 << 16)
    ]
    assert launch(fails, "--resume", str(run), toml=THREE_SIZES)[0] == 1
    assert launch.played == [], "a failure is recorded once"


def test_what_is_compared_with_nothing_has_as_many_launches_as_an_interval_needs(launch: Launch, run: Path) -> None:
    """Where nothing at all is compared every cell has all launches."""
    images = TOML.replace('["openmpi"]', '["openmpi", "mpich", "torch"]')
    toml = images.replace('"multi"', "").replace(', "files"', "") + 'image_backends = { torch = ["torch-gloo"] }\n'
    code, err = launch(clear, toml=toml)
    assert (code, "2 comparisons (2 by image)" in err) == (0, True), err
    assert {played.sequence // 3 for played in launch.played if played.cell.image == "torch"} == set(range(6))
    run.rename(run.with_name("images"))
    alone = TOML.replace('"single", "multi"', '"single"').replace('"strict", "files"', '"strict"').replace("12", "7")
    code, err = launch(clear, toml=alone)
    assert (code, "decides nothing" in err, launches_of(run)) == (0, True, {"single strict": 7}), err


@pytest.mark.parametrize(
    ("takes", "launches", "suggested"), [(noisy, 8, True), (hopeless, 12, False), (clear, 12, False)]
)
def test_at_the_limit_it_is_said_what_is_open_and_what_more_launches_would_start(
    launch: Launch, run: Path, takes: Takes, launches: int, suggested: bool
) -> None:
    """What is too noisy for the limit is given up before."""
    toml = TOML.replace("12", str(launches))
    code, err = launch(takes, toml=toml)
    assert (code, "more launches: " in err) == (0, suggested), err
    open_at_the_end = re.findall(r"in the end: (\d) of 8 .*, (\d) not decided", err)
    assert takes is not noisy or [sum(map(int, numbers)) for numbers in open_at_the_end] == [8]
    assert takes is not hopeless or ("given up" in err and max(launches_of(run).values()) < 12)
    before = sum(launches_of(run).values())
    again = ("--resume", str(run), "--until", "decided", "--launches", str(2 * launches))
    code, err = launch(takes, *again, toml=toml)
    assert (code, sum(launches_of(run).values()) > before) == (0, suggested), err


def test_plan_says_what_would_be_decided(tmp_path: Path, here: Collbench) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(TOML)
    said = here("plan", path)
    assert (said.code, "8 comparisons (4 by policy, 4 by isolation)" in said.out) == (0, True), said
    assert re.search(r"4 cells, .* 12 launches", said.out)
    path.write_text(TOML.replace('until = "decided"\n', ""))
    assert here("plan", path, "--until", "decided") == said, "by its flag as by the plan"
    fixed = here("plan", path)
    assert fixed == here("plan", path, "--until", "launches")
    assert "at most" not in fixed.out and "decides" not in fixed.out
    path.write_text(TOML.replace("12", "5"))
    refused = here("plan", path)
    assert (refused.code, "launches 5: " in refused.err) == (2, True)


def test_without_scipy_nothing_is_started(launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    code, err = launch(clear)
    assert (code, "SciPy" in err) == (2, True), err
    assert not run.exists()


def wide(place: str, case: Case, noise: float) -> float:
    """A tenth more in the container, where launches differ by 7 %."""
    return float(1000.0 * np.exp(noise * 0.07 + 0.1 if place == "single strict" else noise * 0.001))


def test_the_answer_has_intervals_that_hold_any_time(
    launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = TOML.replace('"single", "multi"', '"host", "single"').replace('"strict", "files"', '"strict"')
    (run.parent / "plan.toml").write_text(toml)
    plan = load_launch_plan(run.parent / "plan.toml")
    on_host = FakeEngineSession(taking(wide, plan, []), title="")
    monkeypatch.setattr(host, "ENGINE", replace(host.ENGINE, connect=lambda *_: on_host))
    answer = Mock(return_value=[])
    monkeypatch.setattr("collbench.cli.launch.verdict_tables", answer)
    assert launch(wide, toml=toml)[0] == 0
    observed = observe(run)
    assert max(len(cell.medians) for cell in observed.cells.values()) > 7
    ((comparisons, _),) = (call.args for call in answer.call_args_list)
    expected = compare(within(observed, FACTORS["policy"], frozenset()))
    assert [(one.verdict, one.ratio) for one in comparisons] == [(one.verdict, one.ratio) for one in expected] != []
    assert all(one.pair.base.until_decided for one in comparisons)


def test_without_scipy_a_launch_ends_with_its_times(launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Mock(return_value=[])
    monkeypatch.setattr("collbench.cli.launch.compare", Mock(side_effect=PackageMissing("SciPy is not installed.")))
    monkeypatch.setattr("collbench.cli.launch.launch_tables", tables)
    code, err = launch(clear, toml=FIXED.replace("launches = 7", "launches = 2"))
    assert code == 0, err
    assert [len(call.args[0]) for call in tables.call_args_list] == [len(observe(run).cells)]


# Cases that are open -------------------------------------------------------------------------------------------------


def at_64k(place: str, case: Case, noise: float) -> float:
    """At 64K multi strict takes a tenth more, where launches differ by 8 %; and single files at 1K."""
    open_at = {"multi strict": 1 << 16, "single files": 1024}
    spread = 0.08 if open_at.get(place) == case["size"] else 0.001
    return float(1000.0 * np.exp(noise * spread + (0.1 if spread > 0.01 else 0.0)))


def measured(run: Path) -> dict[tuple[str, int], list[int]]:
    """By place and size the launches that measured it."""
    launches: dict[tuple[str, int], list[int]] = {}
    for record in read_run(run).records:
        launches.setdefault((record.case.where.text, record.case["size"]), []).append(record.launch)
    return {key: sorted(numbers) for key, numbers in launches.items()}


def test_what_is_open_is_measured_again_in_every_place_and_each_line_says_so(launch: Launch, run: Path) -> None:
    code, err = launch(at_64k, toml=THREE_SIZES)
    assert code == 0, err
    launches = measured(run)
    assert {len(numbers) for (_, size), numbers in launches.items() if size == 8} == {AGREED}
    assert launches["multi strict", 1 << 16] == launches["single strict", 1 << 16], "both sides in the same blocks"
    assert len(launches["single files", 1024]) > AGREED
    assert len(launches["multi strict", 1 << 16]) > max(AGREED, len(launches["multi strict", 1024]))
    blocks: dict[int, list[Played]] = {}
    for played in launch.played:
        blocks.setdefault(played.sequence // 4, []).append(played)
    assert min(block for block, of in blocks.items() if any(played.chosen.measured for played in of)) == AGREED
    for block, of_block in blocks.items():
        (sizes,) = {tuple(case["size"] for case in played.executed) for played in of_block}
        assert list(sizes) == sorted(sizes), (block, "as in the plan")
    assert any(played.chosen.brief for played in launch.played), "what is open elsewhere"
    records = read_run(run).records
    lines = re.findall(r"after (\d+) blocks: .*; (\d+) of 12 cases .* (\d) of 4 cells; .* (\d+) launches", err)
    numbers = [tuple(map(int, line)) for line in lines]
    assert numbers[0] == (3, 12, 4, 44) and min(cases for _, cases, *_ in numbers) < 12
    for block, cases, cells, most in numbers:
        again = [record.case.where.text for record in records if record.launch == block]
        assert (len(again), len(set(again)), (14 - block) * cells) == (cases, cells, most)
    performed = {(record.case.where.text, record.launch) for record in records}
    assert f"# {len(performed)} of 56 launches, {len(records)} of 168 measurements\n" in err


def test_a_launch_that_fails_has_failed_in_the_cases_that_it_was_to_measure(launch: Launch, run: Path) -> None:
    def after_what_agreed(place: str, case: Case, noise: float) -> float:
        if place == "multi strict" and len(launch.played) >= 4 * AGREED:
            raise OSError("no such place")
        return at_64k(place, case, noise)

    code, err = launch(after_what_agreed, toml=THREE_SIZES.replace("launches = 14", "launches = 28"))
    failed = {(cell.case.where.text, cell.case["size"]): cell.failed for cell in observe(run).cells.values()
              if cell.failed}  # fmt: skip
    messages = re.findall(r"^collbench: launch \d+ .*multi strict, 2 ranks\) ", err, re.MULTILINE)
    assert (code, failed) == (1, {("multi strict", 1 << 16): len(messages)}), err
    assert len(messages) > 2
    reasons = {(record.case["size"], record.reason) for record in read_run(run).records if record.status == "failed"}
    assert reasons == {(1 << 16, "OSError: no such place")}


def test_tables_have_of_each_case_the_launches_that_it_has(launch: Launch, run: Path, here: Collbench) -> None:
    assert launch(at_64k, toml=THREE_SIZES)[0] == 0
    rows = [line.split() for line in here("show", run).out.splitlines() if line[:1].isdigit()]
    sizes = {"8": 8, "1K": 1024, "64K": 1 << 16}
    numbers = {key: len(launches) for key, launches in measured(run).items()}
    assert {(f"{row[1]} {row[2]}", sizes[row[0]]): int(row[-1]) for row in rows} == numbers
    for comparison in compare(within(observe(run), FACTORS["policy"], frozenset())):
        base, other = (set(cell.launches) for cell in (comparison.pair.base, comparison.pair.other))
        assert comparison.launches == (len(base & other),) * 2
        assert (comparison.left_out, comparison.pair.base.failed) == (0, 0)
    printed = here("compare", run, "--by", "policy", "--all").out
    assert "until decided" in printed and "fewer launches" not in printed


def of_two_sizes(**keys: Any) -> ExpandedPlan:
    plan = Plan(collectives=("bcast",), sizes=("8", "16"), images=("openmpi",), **keys)
    return expand(plan, lambda engine: Topology(tuple(map(Core, range(4)))))


def test_a_program_is_measured_with_all_its_measures_where_one_is_open_anywhere() -> None:
    stream = {"name": "stream", "arrays": "any", "size": ("8", "16")}
    expanded = of_two_sizes(ranks=(1,), policies=("host", "multi"), benchmarks=(stream,))
    cell = expanded.cells[0]
    copy = next(case for case in expanded.expected[cell] if case["measure"] == "copy" and case["size"] == 8)
    bcast = next(case for case in expanded.expected[cell] if case.workload == "bcast" and case["size"] == 16)
    here, elsewhere = (frozenset({until._subject(case)}) for case in (bcast, copy))
    part = until._part(expanded, cell, OpenAtPlace(here, elsewhere))
    assert part.brief == frozenset()
    assert {(case.workload, case["size"], case["measure"]) for case in part.measured} == {
        ("bcast", 16, None), *(("stream", 8, measure) for measure in ("copy", "scale", "add", "triad"))
    }  # fmt: skip
    assert until._part(expanded, cell, OpenAtPlace(elsewhere, here)).brief == {bcast}


@pytest.mark.parametrize(("until", "done"), [("launches", True), ("decided", False)])
def test_until_decided_a_failed_case_is_not_all_of_its_launch(until: str, done: bool) -> None:
    expanded = of_two_sizes(policies=("host",), until=until)
    cell = expanded.cells[0]
    failed = Record(case=placed_case(next(iter(expanded.expected[cell])), cell), launch=0, status="failed")
    assert finished(expanded, (failed,)) == (frozenset({(cell, 0)}) if done else frozenset())


# Interrupted ---------------------------------------------------------------------------------------------------------


def test_a_run_stopped_by_hand_is_valid_and_goes_on_as_if_it_had_not_been(launch: Launch, run: Path) -> None:
    assert (launch(clear, stop_at=25)[0], sum(launches_of(run).values())) == (130, 25)
    code, err = launch(clear, "--resume", str(run))
    records = read_run(run).records
    assert (code, set(launches_of(run).values())) == (0, {AGREED}), err
    assert len({(record.case, record.launch) for record in records}) == len(records)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("takes", "stop_at", "cut"), [(at_64k, 30, 0), (at_64k, 30, 1), (at_64k, 9, 2), (noisy, 33, 1)]
)
def test_a_stopped_run_ends_as_it_would_have(launch: Launch, run: Path, takes: Takes, stop_at: int, cut: int) -> None:
    assert launch(takes, toml=THREE_SIZES)[0] == 0
    whole = measured(run)
    run.rename(run.with_name("whole"))
    assert launch(takes, toml=THREE_SIZES, stop_at=stop_at, cut=cut)[0] == 130
    assert len(read_run(run).records) < sum(map(len, whole.values()))
    code, err = launch(takes, "--resume", str(run), toml=THREE_SIZES)
    assert (code, measured(run)) == (0, whole), err
    assert launch.played[0].sequence >= stop_at - 1, "what is recorded is not launched again"


def test_the_hint_of_an_interrupted_run_is_the_whole_command(launch: Launch, run: Path) -> None:
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


def test_a_full_disk_says_once_what_continues(launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

OTHER = Side(variables={"A": "1"})

#: Keys of the plan now, and what differs from before.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, tuple[object, object]]]] = {
    "nothing": ({}, {}),
    "a key": ({"launches": 9}, {"launches": (8, 9)}),
    "a variable of a side": (
        {"sides": {"base": Side(), "other": Side(variables={"B": "2"})}},
        {"sides.other.variables.A": ("1", None), "sides.other.variables.B": (None, "2")},
    ),
    "an empty variable": (
        {"sides": {"base": Side(variables={"C": ""}), "other": OTHER}}, {"sides.base.variables.C": (None, "")},
    ),
    "another side": (
        {"sides": {"base": Side(libraries=("/x.so",)), "new": Side()}}, {"sides": (["base", "other"], ["base", "new"])},
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
