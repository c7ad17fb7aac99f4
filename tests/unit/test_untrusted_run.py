"""A run is somebody's file: impossible numbers are refused, control characters do not reach the terminal."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collbench.cli.terminal import harmless
from collbench.errors import RunReadError
from collbench.schema.store import read_run


def edited(stored: Path, where: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a run whose first record is changed."""
    copy = Path(shutil.copytree(stored, where / "copy"))
    lines = (copy / "records.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    change(first)
    (copy / "records.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    return copy


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("samples", "invalid", 10**400),
        ("work", "bus_factor", 1e308),
        ("seconds", "p50", 1e300),
        ("case", "bytes", -1),
        ("work", "bytes", 10**400),
        ("work", "bytes", -1),
        ("work", "bus_factor", -1.0),
        ("seconds", "p50", -1.0),
    ],
)
def test_impossible_numbers_are_refused(stored_run: Path, tmp_path: Path, part: str, field: str, value: float) -> None:
    def change(record: dict[str, Any]) -> None:
        record[part][field] = value

    with pytest.raises(RunReadError, match=r"records.jsonl line 1"):
        read_run(edited(stored_run, tmp_path, change))


def test_a_pipe_in_place_of_records_is_refused(stored_run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(stored_run, tmp_path / "copy"))
    (copy / "records.jsonl").unlink()
    os.mkfifo(copy / "records.jsonl")
    with pytest.raises(RunReadError, match="not a regular file"):
        read_run(copy)


def test_what_a_run_says_of_itself_is_cut_in_messages(stored_run: Path, tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        record["case"]["driver"] = "A" * 100_000

    with pytest.raises(RunReadError) as refused:
        read_run(edited(stored_run, tmp_path, change))
    assert len(str(refused.value)) < 1100


def test_letters_that_turn_a_text_round_are_written_out() -> None:
    assert harmless("a\u202eb\u2066c\u2028d") == "a\\u202eb\\u2066c\\u2028d"


def test_control_characters_are_written_out() -> None:
    assert harmless("a\x1b[31mb\rc\nd\x9b") == "a\\x1b[31mb\\x0dc\nd\\u009b"


@pytest.mark.parametrize("field", ["work", "samples", "seconds"])
def test_a_measured_case_without_its_numbers_is_refused(stored_run: Path, tmp_path: Path, field: str) -> None:
    def change(record: dict[str, Any]) -> None:
        assert record["status"] == "ok"
        record[field] = None

    with pytest.raises(RunReadError, match=f"line 1: status ok without {field}"):
        read_run(edited(stored_run, tmp_path, change))


@pytest.mark.parametrize(("part", "value"), [("launch", -1), ("launch", 2**63), ("launch", 10**30), ("ranks", 2**40)])
def test_launches_and_ranks_that_no_run_has_are_refused(
    stored_run: Path, tmp_path: Path, part: str, value: int
) -> None:
    def change(record: dict[str, Any]) -> None:
        (record if part == "launch" else record["case"])[part] = value

    with pytest.raises(RunReadError, match=rf"records.jsonl line 1: .*{part}"):
        read_run(edited(stored_run, tmp_path, change))
