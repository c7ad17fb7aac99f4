"""A run is somebody's file: impossible numbers are refused, control characters do not reach the terminal."""

from __future__ import annotations

import copy
import csv
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.unit.made_runs import made_case, spread, twin, write_run

from collbench.analysis import baseline
from collbench.analysis.runs import observe
from collbench.cli.terminal import harmless
from collbench.errors import RunReadError, RunWriteError
from collbench.report.page.contents import chapter
from collbench.report.page.render import html
from collbench.schema import manifest as manifests
from collbench.schema.manifest import LARGEST_MANIFEST
from collbench.schema.store import read_run

Program = Callable[..., CompletedProcess[str]]


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
        ("case", "ranks", -3),
        ("case", "ranks", 0),
        ("case", "root", -1),
        ("case", "root", 4),
        ("check", "wrong", -5),
        ("samples", "invalid", 1001),
        ("samples", "invalid", 1000),
        ("samples", "n", 0),
        ("samples", "warmup", -1),
        ("ranks", "p50", [-1.0]),
    ],
)
def test_impossible_numbers_are_refused(stored_run: Path, tmp_path: Path, part: str, field: str, value: float) -> None:
    def change(record: dict[str, Any]) -> None:
        record[part][field] = value

    with pytest.raises(RunReadError, match=r"records.jsonl line 1"):
        read_run(edited(stored_run, tmp_path, change))


@pytest.mark.parametrize(("field", "value"), [("launch", -1), ("burst", -7), ("burst", 0)])
def test_impossible_numbers_of_a_record_are_refused(stored_run: Path, tmp_path: Path, field: str, value: int) -> None:
    with pytest.raises(RunReadError, match=rf"records.jsonl line 1: .*{field}"):
        read_run(edited(stored_run, tmp_path, lambda record: record.update({field: value})))


@pytest.mark.parametrize(
    ("part", "field"),
    [("", "workload"), ("where", "image"), ("where", "policy"), ("where", "isolation"), ("what", "dtype")],
)
def test_names_of_a_case_are_bounded(stored_run: Path, tmp_path: Path, part: str, field: str) -> None:
    """Plots lay every letter of a name out: of hundreds of thousands for minutes."""

    def change(record: dict[str, Any]) -> None:
        (record["case"][part] if part else record["case"])[field] = "n" * 513

    with pytest.raises(RunReadError, match=r"line 1: .*512"):
        read_run(edited(stored_run, tmp_path, change))


def test_impossible_numbers_of_a_manifest_are_refused(stored_run: Path) -> None:
    whole = json.loads((stored_run / "manifest.json").read_text())
    for part, field, value in (("protocol", "timeout", -1.0), ("protocol", "warmup", -1), ("host", "cores", -4),
                               ("host", "memory", -1), ("host", "ranks", [-1])):  # fmt: skip
        changed = copy.deepcopy(whole)
        (changed["hosts"][0] if part == "host" else changed[part])[field] = value
        with pytest.raises(RunReadError, match=field):
            manifests.decode(json.dumps(changed).encode())


def test_a_result_that_was_wrong_has_failed_and_has_no_times(stored_run: Path, tmp_path: Path) -> None:
    """Whatever its status says: nothing that reads a run takes its times for times of the operation."""
    run = edited(stored_run, tmp_path, lambda record: record["check"].update(wrong=17))
    first = read_run(run).records[0]
    assert (first.status, first.seconds, first.ranks) == ("failed", None, None)
    assert first.reason == "wrong result: 17 elements are not what allreduce means"
    cell = observe(run).cells[first.case]
    assert (list(cell.medians), cell.failed, cell.wrong) == ([], 1, 1)


def test_what_failed_has_no_times(stored_run: Path, tmp_path: Path) -> None:
    run = edited(stored_run, tmp_path, lambda record: record.update(status="failed", reason="died"))
    assert read_run(run).records[0].seconds is None


FORGED = "openmpi\nopenmpi  single vs host  8  same"


@pytest.mark.slow
@pytest.mark.parametrize("style", ["table", "osu", "nccl-tests", "csv"])
def test_a_name_does_not_begin_a_line(collbench: Program, stored_run: Path, tmp_path: Path, style: str) -> None:
    run = edited(stored_run, tmp_path, lambda record: record["case"]["where"].update(image=FORGED))
    shown = collbench("show", run, "--style", style)
    assert shown.returncode == 0, shown.stderr
    assert "openmpi\\x0aopenmpi" in shown.stdout
    assert not any(line.startswith("openmpi  host") for line in shown.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("style", ["table", "csv", "markdown", "latex"])
def test_a_name_does_not_begin_a_row_of_a_comparison(collbench: Program, tmp_path: Path, style: str) -> None:
    cells = {made_case(policy, image=FORGED): spread(1e-5, 7) for policy in ("host", "single")}
    found = collbench("compare", write_run(tmp_path / "run", cells), "--by", "policy", "--all", "--style", style)
    assert found.returncode == 0, found.stderr
    assert "x0aopenmpi" in found.stdout
    assert not any(
        "single vs host" in line and "x0a" not in line for line in found.stdout.splitlines() if "same" in line
    )


def test_latex_has_control_characters_written_out_and_compiles(collbench: Program, tmp_path: Path) -> None:
    cells = {made_case(policy, image="a\x1b[31mb\n"): spread(1e-5, 7) for policy in ("host", "single")}
    run = write_run(tmp_path / "run", cells)
    printed = collbench("compare", run, "--by", "policy", "--style", "latex").stdout
    assert "a\\textbackslash{}x1b" in printed and "\\x1b" not in printed


@pytest.mark.slow
def test_names_with_control_characters_leave_json_whole(collbench: Program, tmp_path: Path) -> None:
    cells = {made_case(policy, image="a\x7f\x85\x1b\u202eb"): spread(1e-5, 7) for policy in ("host", "single")}
    run = write_run(tmp_path / "a\x7fb", cells)
    for asked in (("show", run), ("compare", run, "--by", "policy"), ("compare", run, twin(run))):
        done = collbench(*asked, "--style", "json")
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout)


def test_a_formula_in_a_name_stays_text_in_a_spreadsheet(collbench: Program, stored_run: Path, tmp_path: Path) -> None:
    run = edited(
        stored_run, tmp_path, lambda record: record["case"]["where"].update(image='=HYPERLINK("http://x","y")')
    )
    (first, *_) = csv.DictReader(collbench("show", run, "--style", "csv").stdout.splitlines())
    assert first["image"] == '\'=HYPERLINK("http://x","y")'
    assert float(first["median_s"]) > 0


@pytest.mark.parametrize("name", ["a\x07b", "\u4f60\ue000", "n" * 512])
def test_names_in_plots_are_no_warning(tmp_path: Path, name: str) -> None:
    """Matplotlib warns of letters that it lacks, as they are, and of names that leave no room: an error in a test."""
    cells = {made_case(policy, image=name): spread(1e-5, 7) for policy in ("host", "single", f"single/{name[:500]}")}
    page = html([chapter(observe(write_run(tmp_path / "run", cells)), {}, 0.02)])
    assert "<svg" in page
    assert "\x07" not in page


def test_a_manifest_larger_than_any_is_refused(stored_run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(stored_run, tmp_path / "copy"))
    os.truncate(copied / "manifest.json", LARGEST_MANIFEST + 1)
    with pytest.raises(RunReadError, match=r"manifest.json: larger than 64 MiB"):
        read_run(copied)


def test_a_baseline_larger_than_any_is_refused_and_not_written(
    stored_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "LARGEST", 1 << 10)
    (tmp_path / "large.json").write_bytes(b" " * (1 << 10) + b"{}")
    with pytest.raises(RunReadError, match=r"large.json: larger than"):
        baseline.load(tmp_path / "large.json")
    with pytest.raises(RunWriteError, match=r"Keep a part of the run"):
        baseline.keep(observe(stored_run), tmp_path / "kept.json")
    assert not (tmp_path / "kept.json").exists()


@pytest.mark.parametrize("twice", ["cell", "launch"])
def test_a_baseline_says_a_thing_once(tmp_path: Path, twice: str) -> None:
    kept = tmp_path / "kept.json"
    baseline.keep(observe(write_run(tmp_path / "run", {made_case(): spread(1e-5, 7)})), kept)
    document = json.loads(kept.read_text())
    if twice == "cell":
        document["cells"] *= 2
    else:
        document["cells"][0]["launches"][1] = 0
    kept.write_text(json.dumps(document))
    with pytest.raises(RunReadError, match="comes twice" if twice == "cell" else "6 different launches, 7 medians"):
        baseline.load(kept)


def test_messages_of_a_run_are_one_line(stored_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunReadError) as refused:
        read_run(edited(stored_run, tmp_path, lambda record: record.update({"a\nb": 1})))
    assert "a\\x0ab" in str(refused.value)
    assert "\n" not in str(RunReadError("a\nb"))


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
