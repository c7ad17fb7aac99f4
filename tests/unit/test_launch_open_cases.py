"""`launch --until decided` on the fake engine: launches measure what is open, and the run says nothing else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.decided_worlds import TOML, Launch, Played, clear, noisy

from collbench.analysis.compare import compare
from collbench.analysis.deciding import OpenAtPlace
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import within
from collbench.analysis.runs import observe
from collbench.cli import run_command, until
from collbench.cli.plan import seconds_of_launch
from collbench.launch.campaign import finished
from collbench.launch.cells import LaunchPart
from collbench.launch.collect import placed_case
from collbench.launch.expansion import expand
from collbench.machine.topology import Core, Topology
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.schema.store import read_run

SIZES = TOML.replace('["8", "64K"]', '["8", "1K", "64K"]').replace("launches = 12", "launches = 14")

#: So many blocks that agree decide all three sizes.
AGREED = 8


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Launch:
    return Launch(tmp_path, monkeypatch, capsys)


def at_64k(place: str, case: Case, noise: float) -> float:
    """At 64K multi strict takes a tenth more, where launches differ by 8 %; and single files at 1K."""
    open_at = {"multi strict": 1 << 16, "single files": 1024}
    spread = 0.08 if open_at.get(place) == case["size"] else 0.001
    return float(1000.0 * np.exp(noise * spread + (0.1 if spread > 0.01 else 0.0)))


def measured(run: Path) -> dict[tuple[str, int], list[int]]:
    """By place and size the launches that measured it."""
    found: dict[tuple[str, int], list[int]] = {}
    for record in read_run(run).records:
        found.setdefault((record.case.where.text, record.case["size"]), []).append(record.launch)
    return {key: sorted(launches) for key, launches in found.items()}


def by_block(played: list[Played], cells: int = 4) -> dict[int, list[Played]]:
    found: dict[int, list[Played]] = {}
    for one in played:
        found.setdefault(one.sequence // cells, []).append(one)
    return found


def test_only_what_is_open_is_measured_again(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(at_64k, toml=SIZES)
    assert code == 0, err
    found = measured(tmp_path / "run")
    assert {len(launches) for (_, size), launches in found.items() if size == 8} == {AGREED}
    assert found["multi strict", 1 << 16] == found["single strict", 1 << 16], "both sides in the same blocks"
    assert len(found["multi strict", 1 << 16]) > AGREED
    assert len(found["single files", 1024]) > AGREED
    assert len(found["multi strict", 1024]) < len(found["multi strict", 1 << 16])


def test_places_that_are_compared_execute_the_same_in_the_same_order(launch: Launch) -> None:
    assert launch(at_64k, toml=SIZES)[0] == 0
    blocks = by_block(launch.played)
    partly = {block for block, played in blocks.items() if any(one.chosen.measured for one in played)}
    assert partly and min(partly) == AGREED
    for block, played in blocks.items():
        assert len({tuple(case["size"] for case in one.executed) for one in played}) == 1, block
        sizes = [case["size"] for case in played[0].executed]
        assert sizes == sorted(sizes), "as in the plan"
    assert any(one.chosen.brief for one in launch.played), "what is open elsewhere"


def test_each_line_says_what_is_measured_again_and_the_last_what_was(launch: Launch, tmp_path: Path) -> None:
    err = launch(at_64k, toml=SIZES)[1]
    records = read_run(tmp_path / "run").records
    launches = {(one.case.where.text, one.launch) for one in records}
    lines = re.findall(
        r"after (\d+) blocks: .*; (\d+) of 12 cases measured again, in (\d) of 4 cells; at most (\d+) launches", err
    )
    found = [tuple(map(int, line)) for line in lines]
    assert found[0] == (3, 12, 4, 44) and min(cases for _, cases, *_ in found) < 12
    for block, cases, cells, most in found:
        again = [one.case.where.text for one in records if one.launch == block]
        assert (len(again), len(set(again)), (14 - block) * cells) == (cases, cells, most)
    assert f"# {len(launches)} of 56 launches, {len(records)} of 168 measurements\n" in err
    first = err.splitlines()[0]
    assert "at most about" not in first and first.endswith(", if all launches are needed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("takes", "stop_at", "cut"), [(at_64k, 30, 0), (at_64k, 30, 1), (at_64k, 9, 2), (noisy, 33, 1)]
)
def test_a_run_that_was_stopped_has_in_the_end_what_it_would_have_had(
    launch: Launch, tmp_path: Path, takes: Callable[[str, Case, float], float], stop_at: int, cut: int
) -> None:
    assert launch(takes, toml=SIZES)[0] == 0
    whole = measured(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "whole")
    assert launch(takes, toml=SIZES, stop_at=stop_at, cut=cut)[0] == 130
    assert len(read_run(tmp_path / "run").records) < sum(map(len, whole.values()))
    code, err = launch(takes, "--resume", str(tmp_path / "run"), toml=SIZES)
    assert code == 0, err
    assert measured(tmp_path / "run") == whole
    assert launch.played[0].sequence >= stop_at - 1, "what is recorded is not launched again"


def test_a_launch_that_fails_has_failed_in_the_cases_that_it_was_to_measure(launch: Launch, tmp_path: Path) -> None:
    def after_what_agreed(place: str, case: Case, noise: float) -> float:
        if place == "multi strict" and len(launch.played) >= 4 * AGREED:
            raise OSError("no such place")
        return at_64k(place, case, noise)

    code, err = launch(after_what_agreed, toml=SIZES.replace("launches = 14", "launches = 28"))
    assert code == 1
    cells = {(cell.case.where.text, cell.case["size"]): cell for cell in observe(tmp_path / "run").cells.values()}
    assert (
        cells["multi strict", 1 << 16].failed
        == len(re.findall(r"^collbench: launch \d+ .*multi strict, 2 ranks\) ", err, re.MULTILINE))
        > 2
    )
    assert cells["multi strict", 8].failed == cells["multi strict", 1024].failed == 0
    assert all(cell.failed == 0 for (place, _), cell in cells.items() if place != "multi strict")
    records = [record for record in read_run(tmp_path / "run").records if record.status == "failed"]
    assert {record.case["size"] for record in records} == {1 << 16}
    assert {record.reason for record in records} == {"OSError: no such place"}


def test_a_whole_launch_that_fails_has_a_record_of_each_case(launch: Launch, tmp_path: Path) -> None:
    def never(place: str, case: Case, noise: float) -> float:
        if place == "multi strict":
            raise OSError("no such place")
        return clear(place, case, noise)

    assert launch(never, toml=SIZES)[0] == 1
    records = [record for record in read_run(tmp_path / "run").records if record.status == "failed"]
    assert sorted((record.launch, record.case["size"]) for record in records) == [
        (block, size) for block in range(3) for size in (8, 1024, 1 << 16)
    ]
    assert launch(never, "--resume", str(tmp_path / "run"), toml=SIZES)[0] == 1
    assert launch.played == [], "a failure is recorded once"


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["collbench", *words])
    assert run_command(speaks=True) == 0
    return capsys.readouterr().out


def test_tables_have_of_each_case_the_launches_that_it_has(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(at_64k, toml=SIZES)[0] == 0
    run = str(tmp_path / "run")
    numbers = {key: len(launches) for key, launches in measured(tmp_path / "run").items()}
    rows = [line.split() for line in shown(monkeypatch, capsys, "show", run).splitlines() if line[:1].isdigit()]
    sizes = {"8": 8, "1K": 1024, "64K": 1 << 16}
    assert {(f"{row[1]} {row[2]}", sizes[row[0]]): int(row[-1]) for row in rows} == numbers
    pairs = within(observe(tmp_path / "run"), find_factor("policy"), frozenset())
    for one in compare(pairs):
        base, other = (set(cell.launches) for cell in (one.pair.base, one.pair.other))
        assert one.launches == (len(base & other),) * 2
        assert (one.left_out, one.pair.base.failed) == (0, 0)
    said = shown(monkeypatch, capsys, "compare", run, "--by", "policy", "--all")
    assert "launched until decided" in said and "fewer launches" not in said


def test_what_is_compared_with_nothing_has_as_many_launches_as_an_interval_needs(
    launch: Launch, tmp_path: Path
) -> None:
    images = (
        TOML.replace('["openmpi"]', '["openmpi", "mpich", "torch"]').replace('"multi"', "").replace(', "files"', "")
    )
    code, err = launch(clear, toml=f'{images}image_backends = {{ torch = ["torch-gloo"] }}\n')
    assert code == 0, err
    assert "decides 2 comparisons (2 by image)" in err
    found = {(one.cell.image, one.sequence // 3) for one in launch.played}
    assert {number for image, number in found if image == "torch"} == set(range(6))


# Of parts ------------------------------------------------------------------------------------------------------------


def machine(engine: str) -> Topology:
    return Topology(tuple(map(Core, range(4))))


def test_a_program_is_measured_with_all_its_measures_where_one_is_open_anywhere() -> None:
    plan = Plan(
        collectives=("bcast",), sizes=("8", "16"), ranks=(1,), images=("openmpi",), policies=("host", "multi"),
        benchmarks=({"name": "stream", "arrays": "any", "size": ("8", "16")},),
    )  # fmt: skip
    expanded = expand(plan, machine)
    cell = expanded.cells[0]
    copy = next(case for case in expanded.expected[cell] if case["measure"] == "copy" and case["size"] == 8)
    bcast = next(case for case in expanded.expected[cell] if case.workload == "bcast" and case["size"] == 16)
    here, elsewhere = until._subject(bcast), until._subject(copy)
    found = until._part(expanded, cell, OpenAtPlace(frozenset({here}), frozenset({elsewhere})))
    assert found.brief == frozenset()
    assert {(case.workload, case["size"], case["measure"]) for case in found.measured} == {
        ("bcast", 16, None), *(("stream", 8, measure) for measure in ("copy", "scale", "add", "triad"))
    }  # fmt: skip
    turned = until._part(expanded, cell, OpenAtPlace(frozenset({elsewhere}), frozenset({here})))
    assert turned.brief == {bcast}


def test_a_launch_of_a_part_is_estimated_shorter() -> None:
    expanded = expand(Plan(collectives=("bcast",), sizes=("8", "16"), images=("openmpi",)), machine)
    cell = expanded.cells[0]
    one = next(iter(expanded.expected[cell]))
    none, part, brief, all_of_it = (
        seconds_of_launch(expanded, cell, asked, False)
        for asked in (
            LaunchPart(frozenset()),
            LaunchPart(frozenset({one})),
            LaunchPart(frozenset(), frozenset({one})),
            None,
        )
    )
    assert none < brief < part < all_of_it
    assert all_of_it - part == pytest.approx(part - none)


@pytest.mark.parametrize(("until", "done"), [("launches", True), ("decided", False)])
def test_until_decided_a_failed_case_is_not_all_of_its_launch(until: str, done: bool) -> None:
    plan = Plan(collectives=("bcast",), sizes=("8", "16"), images=("openmpi",), policies=("host",), until=until)
    expanded = expand(plan, machine)
    cell = expanded.cells[0]
    case = next(iter(expanded.expected[cell]))
    failed = Record(case=placed_case(case, cell), launch=0, status="failed")
    assert finished(expanded, (failed,)) == (frozenset({(cell, 0)}) if done else frozenset())
