"""Files that commands are given: an empty name names nothing, and a pipe is not waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import made_case, write_run

from collbench.cli.terminal import harmless

PLAN = 'collectives = ["allreduce"]\nsizes = ["8"]\nimages = ["openmpi"]\npolicies = ["host"]\nengine = "fake"\n'
DEEP = "[" * 100_000


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "plan.toml"


@pytest.mark.parametrize(
    "words",
    ["show ''", "advise ''", "report ''", "history ''", "pack ''", "compare '' x", "launch ''", "plan ''", "run ''",
     "gate ''", "launch quick --out ''", "launch quick --resume ''", "launch quick --site ''",
     "launch quick --docker-host ''",
     "gate quick --other image=a --out ''", "compare x --save-baseline ''", "selftest --out ''", "allreduce --out ''"],
)  # fmt: skip
def test_an_empty_name_is_not_this_folder(
    here: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = here(*("" if word == "''" else word for word in words.split()))
    assert (code, out) == (2, "") and "it is empty" in err, err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "engine"),
    [("launch PLAN --dry-run", "fake"), ("plan PLAN --on docker", "docker"), ("plan PLAN --on podman", "podman"),
     ("launch --sweep --on fake", "fake")],
)  # fmt: skip
def test_a_site_file_that_the_engine_would_not_read_is_refused(
    here: Collbench, plan: Path, tmp_path: Path, words: str, engine: str
) -> None:
    code, out, err = here(*words.replace("PLAN", str(plan)).split(), "--site", tmp_path / "nonexistent")
    assert (code, out, err) == (2, "", f"collbench: --site is for slurm and k8s; the engine is {engine}.\n")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "words",
    ["launch PIPE", "plan PIPE", "run PIPE", "launch PLAN --on slurm --site PIPE", "gate PIPE",
     "run PLAN --placement PIPE", "gate PLAN --other lib=PIPE", "show PIPE"],
)  # fmt: skip
def test_no_command_waits_for_a_pipe_that_nobody_writes_to(here: Collbench, plan: Path, pipe: Path, words: str) -> None:
    code, _, err = here(*(word.replace("PIPE", str(pipe)).replace("PLAN", str(plan)) for word in words.split()))
    assert code == 2 and err.count("\n") == 1 and str(pipe) in err, err


@pytest.mark.parametrize("name", ["plan.json", "plan.toml"])
def test_a_plan_that_is_nested_too_deep_is_said_to_be(here: Collbench, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(f'{{"sizes": {DEEP}' if name.endswith("json") else f"sizes = {DEEP}")
    code, _, err = here("plan", tmp_path / name)
    assert code == 2 and "nested too deeply" in err and "recursion" not in err, err


def test_a_record_that_is_nested_too_deep_is_said_to_be(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {made_case(): [1e-6]})
    (run / "records.jsonl").write_text(f'{{"case": {DEEP}\n')
    code, _, err = here("show", run)
    assert code == 2 and "nested too deeply" in err, err


@pytest.mark.parametrize("style", ["table", "csv"])
def test_a_run_without_records_is_not_shown(here: Collbench, tmp_path: Path, style: str) -> None:
    run = write_run(tmp_path / "run", {})
    assert here("show", run, "--style", style) == (2, "", f"collbench: {run}: no records in it.\n")


def test_bytes_of_a_name_that_are_no_characters_are_shown_as_bytes() -> None:
    assert harmless("caf\udce9") == "caf\\xe9"


@pytest.mark.timeout(60)
def test_a_pipe_without_a_reader_is_not_waited_for_by_what_writes_to_it(here: Collbench, pipe: Path) -> None:
    short = ("-n", "1", "-e", "8", "--backend", "fake")
    code, _, err = here("allreduce", *short, "-J", pipe)
    assert code == 1 and str(pipe) in err


@pytest.mark.parametrize("words", ["allreduce -J a --out LOOP", "run quick -J LOOP", "show LOOP", "compare LOOP LOOP",
                                   "history LOOP/x", "report LOOP -o a.md"])  # fmt: skip
def test_a_link_that_leads_to_itself_is_refused(here: Collbench, tmp_path: Path, words: str) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    code, _, err = here(*words.replace("LOOP", str(loop)).split())
    assert code == 2 and str(loop) in err
