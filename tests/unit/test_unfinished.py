"""A run that was stopped before its launches: whoever answers from it says so first, and what finishes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.unit.made_runs import experiment, library, made_case, made_failure, spread, write_run

from collbench.cli import run_command
from collbench.schema.files import is_being_written, locked

HOST, MULTI = made_case(image="openmpi"), made_case("multi", "strict", image="openmpi")


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> str:
    monkeypatch.setattr(sys, "argv", ["collbench", *map(str, words)])
    assert run_command(speaks=True) == 0
    return capsys.readouterr().out


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Eight launches were planned, and the second side has three."""
    return write_run(tmp_path / "my run", {HOST: spread(1e-5, 8), MULTI: spread(2e-5, 8)[:3]})


def caution(run: Path) -> str:
    return (f"{run} was stopped before its 8 launches: 1 cell has fewer (to finish it: "
            f"collbench launch PLAN --resume '{run}')")  # fmt: skip


def test_a_launch_that_still_runs_was_not_stopped(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_being_written(run) and not is_being_written(run / "nowhere")
    with locked((run / "records.jsonl").open("ab", buffering=0)):
        assert is_being_written(run)
        notes = said(capsys, monkeypatch, "compare", "--by", "policy", run)
    assert "still being measured" in notes and "was stopped" not in notes
    assert caution(run) in said(capsys, monkeypatch, "compare", "--by", "policy", run)


@pytest.mark.parametrize("words", [("compare", "--by", "policy"), ("compare", "--by", "policy", "--all"), ("advise",)])
def test_it_is_the_first_caution(
    run: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [line for line in said(capsys, monkeypatch, *words, run).splitlines() if line.startswith("* ")]
    if words[0] == "advise":
        notes = notes[[caution(run) in note for note in notes].index(True) :]
    assert notes[0] == f"* {caution(run)}"


def test_programs_are_told_it_too(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = json.loads(said(capsys, monkeypatch, "compare", "--by", "policy", "--style", "json", run))
    assert compared["notes"][0] == caution(run)
    advised = json.loads(said(capsys, monkeypatch, "advise", "--style", "json", run))
    assert advised["cautions"][0] == caution(run)


def test_a_report_has_it_first_of_what_could_mislead(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, monkeypatch, "report", run, "-o", tmp_path / "report.txt")
    lines = (tmp_path / "report.txt").read_text(encoding="utf-8").splitlines()
    cautions = [line.split("  ", 1)[1].strip() for line in lines if line.startswith("what could mislead  ")]
    assert cautions[0] == caution(run)


def test_of_two_runs_each_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_run(tmp_path / "whole", {HOST: spread(1e-5, 8), MULTI: spread(2e-5, 8)})
    other = write_run(tmp_path / "other", {HOST: spread(1e-5, 8), MULTI: spread(2e-5, 8)[:5]},
                      libraries=(library("MPICH", "4.3"),))  # fmt: skip
    notes = said(capsys, monkeypatch, "compare", whole, run)
    assert notes.count("was stopped") == 1 and caution(run) in notes
    notes = said(capsys, monkeypatch, "compare", "--ignore", "library", other, run)
    assert caution(run) in said(capsys, monkeypatch, "advise", whole, run, "--ignore", "library")
    assert notes.count("was stopped") == 2 and notes.index(str(other)) < notes.index(caution(run))


def test_blocks_before_those_until_decided_are_to_be_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was stopped after 7 of 8 launches, and then given more: these are made first."""
    end = experiment(("openmpi",), launches=20, until="decided")
    run = write_run(tmp_path / "my run", {HOST: spread(1e-5, 12), MULTI: spread(2e-5, 8)[:7]}, experiment=end,
                    plan={"launches": 8, "until": "launches"})  # fmt: skip
    assert caution(run) in said(capsys, monkeypatch, "compare", "--by", "policy", run)


def test_a_complete_run_one_that_failed_and_one_until_decided_were_not_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [made_failure(MULTI, 7, "a container died")]
    few = experiment(("openmpi",), launches=20, until="decided")
    runs = [
        write_run(tmp_path / "whole", {HOST: spread(1e-5, 8), MULTI: spread(2e-5, 8)}),
        write_run(tmp_path / "failed", {HOST: spread(1e-5, 8), MULTI: [*spread(2e-5, 8)[:7], *failed]}),
        write_run(tmp_path / "decided", {HOST: spread(1e-5, 8), MULTI: spread(2e-5, 8)}, experiment=few),
    ]
    for complete in runs:
        for words in (("compare", "--by", "policy"), ("advise",)):
            assert "was stopped" not in said(capsys, monkeypatch, *words, complete)
