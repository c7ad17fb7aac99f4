"""`launch --resume DIR --until decided --launches N`: a run that is there gets more launches, and is judged by bets."""

from __future__ import annotations

import errno
import os
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.decided_worlds import TOML, Launch, clear, launches_of, noisy

from collbench.analysis.runs import observe
from collbench.schema.case import Case
from collbench.schema.manifest import read_manifest
from collbench.schema.store import RunWriter, read_run

FIXED = TOML.replace("launches = 12", "launches = 7").replace('until = "decided"\n', "")

#: With as many as decide two sizes that agree.
EIGHT = FIXED.replace("launches = 7", "launches = 8")


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Launch:
    return Launch(tmp_path, monkeypatch, capsys)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_fixed_number_of_launches_is_continued_until_decided(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=EIGHT)[0] == 0
    before = read_run(run).records
    code, err = launch(noisy, "--resume", str(run), "--until", "decided", "--launches", "14", toml=EIGHT)
    assert code == 0, err
    found = launches_of(run)
    assert 8 == found["single files"] < found["multi strict"] == found["single strict"] <= 14, (found, err)
    after = read_run(run)
    assert after.records[: len(before)] == before and min(one.launch for one in after.records[len(before) :]) == 8
    assert re.search(r"after 8 blocks: [1-7] of 8 comparisons decided", err)
    assert "judged by bets from now on: what a fixed number of launches just decided may be open again" in err
    experiment, plan = after.manifest.experiment, after.manifest.plan
    assert experiment is not None and (experiment.until, experiment.launches) == ("decided", 14)
    assert plan is not None and (plan["until"], plan["launches"]) == ("launches", 8), "where it began"
    assert all(cell.until_decided for cell in observe(run).cells.values())


def test_a_plan_that_says_more_does_without_flags(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=FIXED)[0] == 0
    code, err = launch(
        noisy, "--resume", str(run), toml=FIXED.replace("launches = 7", 'launches = 14\nuntil = "decided"')
    )
    assert (code, launches_of(run)["multi strict"] > 7) == (0, True), err


def test_more_launches_without_until_decided_are_refused(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=FIXED)[0] == 0
    for flags, toml in ((("--launches", "9"), FIXED), ((), FIXED.replace("= 7", "= 9"))):
        code, err = launch(noisy, "--resume", str(run), *flags, toml=toml)
        assert code == 2
        assert "has 7 launches of each cell, and 9 are asked for" in err
        assert "makes false alarms" in err and "add --until decided" in err
    assert launches_of(run)["multi strict"] == 7


@pytest.mark.parametrize("launches", [(), ("--launches", "7"), ("--launches", "6")])
def test_no_more_launches_than_there_are_are_refused(launch: Launch, run: Path, launches: tuple[str, ...]) -> None:
    assert launch(noisy, toml=FIXED)[0] == 0
    code, err = launch(noisy, "--resume", str(run), "--until", "decided", *launches, toml=FIXED)
    assert code == 2
    asked = launches[-1] if launches else "7"
    assert f"has 7 launches of each cell, and at most {asked} are asked for. Ask for more: --launches 14" in err


def test_of_a_run_that_was_stopped_it_is_not_said_that_it_has_them(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=FIXED, stop_at=18)[0] == 130
    code, err = launch(noisy, "--resume", str(run), "--until", "decided", toml=FIXED)
    said = "7 launches of each cell are planned, and not all measured: finish it first with --resume"
    assert (code, f"{said} {run} alone (without --until), or ask for more: --launches 14." in err) == (2, True), err
    code, err = launch(noisy, "--resume", str(run), toml=f'{FIXED}until = "decided"\n')
    assert (code, f"{said} {run} --until launches, or ask for more: --launches 14." in err) == (2, True), err
    assert launch(noisy, "--resume", str(run), toml=FIXED)[0] == 0
    code, err = launch(noisy, "--resume", str(run), "--until", "decided", toml=FIXED)
    assert (code, "has 7 launches of each cell, and at most 7 are asked for" in err) == (2, True), err


def test_of_a_run_with_more_launches_than_are_asked_for_its_number_is_said(launch: Launch, run: Path) -> None:
    assert launch(clear, "--until", "decided", "--launches", "12", toml=FIXED)[0] == 0
    for flags in (("--until", "decided"), ()):
        code, err = launch(clear, "--resume", str(run), *flags, "--launches", "9", toml=FIXED)
        assert (code, "another plan" in err) == (2, False), err
        said = "the run has at most 12 launches of each cell. Ask for 12 or more, or leave out --launches."
        assert f"--resume {run} --launches 9: {said}" in err
    assert launch(clear, "--resume", str(run), "--launches", "12", toml=FIXED)[0] == 0


def test_after_a_full_disk_what_is_there_and_what_continues_are_said_once(
    launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, left = RunWriter.append, iter(range(5))

    def full(writer: RunWriter, *record: Any) -> Any:
        if next(left, None) is None:
            monkeypatch.setattr(os, "fsync", no_space)
        return append(writer, *record)

    def no_space(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunWriter, "append", full)
    code, err = launch(clear, toml=FIXED)
    continues = f"collbench launch {run.parent / 'plan.toml'} --resume {run}"
    assert (code, err.splitlines()[-1]) == (
        1, f"collbench: --out {run}: No space left on device. The 5 records written before are whole (collbench show "
           f"{run}). To continue: {continues}"
    )  # fmt: skip


def test_another_key_that_differs_is_another_plan(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=FIXED)[0] == 0
    other = FIXED.replace('"64K"', '"32K"')
    code, err = launch(noisy, "--resume", str(run), "--until", "decided", "--launches", "14", toml=other)
    assert (code, "was made with another plan (sizes: " in err) == (2, True), err
    assert "launches: " not in err


def test_of_what_is_decided_nothing_is_measured_and_the_run_stays_as_it_was(launch: Launch, run: Path) -> None:
    assert launch(clear, toml=FIXED.replace("= 7", "= 12"))[0] == 0
    kept = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    code, err = launch(
        clear, "--resume", str(run), "--until", "decided", "--launches", "20", toml=FIXED.replace("7", "12")
    )
    assert code == 0
    assert "8 of 8 comparisons decided" in err and "nothing is started, and the run stays as it was" in err
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == kept


def test_blocks_that_were_to_be_whole_are_completed_first(launch: Launch, run: Path) -> None:
    assert launch(noisy, toml=EIGHT, stop_at=18)[0] == 130
    code, err = launch(noisy, "--resume", str(run), "--until", "decided", "--launches", "14", toml=EIGHT)
    assert code == 0, err
    found = launches_of(run)
    assert found["single files"] == 8 < found["multi strict"], found


def by_block(run: Path) -> dict[int, set[Case]]:
    found: dict[int, set[Case]] = {}
    for record in read_run(run).records:
        found.setdefault(record.launch, set()).add(record.case)
    return found


def hopeless(place: str, case: Case, noise: float) -> float:
    """In multi strict launches of 8 bytes differ by 70 %, those of 64 KiB by 5 % where a tenth more is to be seen."""
    if place != "multi strict":
        return float(1000.0 * np.exp(noise * 0.001))
    return float(1000.0 * np.exp(noise * 0.7 if case["size"] == 8 else noise * 0.05 + 0.1))


def test_what_was_given_up_for_so_many_is_measured_from_a_new_block_on(launch: Launch, run: Path) -> None:
    code, err = launch(hopeless)
    before = by_block(run)
    assert (code, "given up as too noisy for 12 launches" in err) == (0, True)
    assert len(before[0]) > len(before[len(before) - 1]), "a block lacks what was given up"
    code, err = launch(hopeless, "--resume", str(run), "--launches", "60")
    assert code == 0, err
    after = by_block(run)
    assert {block: after[block] for block in before} == before, "a side is never measured long after the other"
    (given_up,) = {case for case in before[0] if case.where.text == "multi strict" and case["size"] == 8}
    assert given_up not in before[len(before) - 1] and given_up in after[len(before)]


def test_a_continued_run_that_was_interrupted_goes_on_as_if_it_had_not_been(launch: Launch, tmp_path: Path) -> None:
    run, flags = tmp_path / "run", ("--until", "decided", "--launches", "14")
    assert launch(noisy, toml=FIXED)[0] == 0
    assert launch(noisy, "--resume", str(run), *flags, toml=FIXED, stop_at=3)[0] == 130
    assert launch(noisy, "--resume", str(run), toml=FIXED)[0] == 0, "the run knows how it ends"
    stopped = by_block(run)
    run.rename(tmp_path / "stopped")
    assert launch(noisy, toml=FIXED)[0] == 0
    assert launch(noisy, "--resume", str(run), *flags, toml=FIXED)[0] == 0
    assert by_block(run) == stopped


def test_the_hint_of_an_interrupted_run_is_the_whole_command(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(clear, "--until", "decided", "--launches", "12", toml=FIXED, stop_at=25)
    assert code == 130
    words = shlex.split(err[err.index("continue: ") :].splitlines()[0])[1:]
    plan, run = str(tmp_path / "plan.toml"), str(tmp_path / "run")
    assert words == ["collbench", "launch", plan, "--resume", run, "--until", "decided", "--launches", "12"]
    code, err = launch(clear, *words[3:], toml=FIXED)
    assert (code, "Nothing is left to decide" in err) == (0, True), err


def test_a_run_until_decided_is_resumed_without_its_flag(launch: Launch, run: Path) -> None:
    assert launch(clear, "--until", "decided", "--launches", "12", toml=FIXED, stop_at=25)[0] == 130
    code, err = launch(clear, "--resume", str(run), toml=FIXED)
    assert (code, "Nothing is left to decide" in err) == (0, True), err
    experiment = read_manifest(run).experiment
    assert experiment is not None and (experiment.until, experiment.launches) == ("decided", 12)


def dies_once(died: list[int]) -> object:
    def takes(place: str, case: Case, noise: float) -> float:
        if place == "multi strict" and not died:
            died.append(1)
            raise OSError("no such place")
        return noisy(place, case, noise)

    return takes


def test_a_launch_that_failed_before_has_failed_in_all_its_cases(launch: Launch, run: Path) -> None:
    takes = dies_once([])
    assert launch(takes, toml=FIXED)[0] == 1  # type: ignore[arg-type]
    assert launch(noisy, "--resume", str(run), "--until", "decided", "--launches", "14", toml=FIXED)[0] == 1
    cells = observe(run).cells.values()
    assert [cell.failed for cell in cells if cell.case.where.text == "multi strict"] == [1, 1]
    assert sum(record.status == "failed" for record in read_run(run).records) == 1
