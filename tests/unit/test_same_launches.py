"""The same launches are refused where they would count twice, under whatever names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import made_case, spread, twin, write_launches, write_run

CASES = {made_case(policy, image="a"): spread(centre) for policy, centre in (("host", 1e-5), ("single", 2e-5))}


def refuse(here: Collbench, arguments: tuple[object, ...], *folders: object) -> None:
    """It ends with 2, prints nothing, and the message names these folders."""
    found = here(*arguments)
    assert (found.code, found.out) == (2, ""), arguments
    assert "hold the same launches" in found.err
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
