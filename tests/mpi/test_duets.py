"""Experiments with two sides on real launchers: duets, gates, self-tests, yardsticks."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench import yardsticks
from collbench.bindings.mpi import library_path, load_mpi
from collbench.errors import to_install
from collbench.launch.folders import sweep_folders
from collbench.machine.facts import rank_facts
from collbench.schema.record import Record
from collbench.schema.store import READINGS, read_readings
from collbench.schema.world import SliceRule
from tests.mpi.jobs import BIN, Command, Ended, environment, finish, mpi_vendor
from tests.processes import LIMIT, wait_for
from tests.runs import read_run
from tests.turns import assert_slept

PLAN = """
collectives = ["bcast"]
sizes = ["8", "64K"]
policies = ["host"]
images = ["{vendor}"]
environments = {{ {vendor} = "{environment}" }}
ranks = [2]
oversubscribe = true
launches = {launches}
align = "barrier"
timeout = "{timeout}"
{more}
[sides.base]
[sides.other]
variables = {{ COLLBENCH_TEST_SIDE = "other" }}
"""


class Launch:
    """`collbench launch` in a session of its own, whose temporary files lie in a folder of this test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.process: subprocess.Popen[str] | None = None

    def start(self, launches: int = 1, timeout: str = "1m", more: str = "", resume: bool = False) -> None:
        plan = PLAN.format(vendor=mpi_vendor(), environment=sys.prefix, launches=launches, timeout=timeout, more=more)
        (self.folder / "plan.toml").write_text(plan)
        where = ("--resume" if resume else "--out", str(self.run))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "collbench", "launch", str(self.folder / "plan.toml"), *where],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(TMPDIR=str(self.temporary)), start_new_session=True,
        )  # fmt: skip

    def ended(self) -> tuple[int, str]:
        """Exit code and standard error; no folder is left."""
        assert self.process is not None
        _, err = self.process.communicate(timeout=LIMIT)
        assert [path.name for path in self.temporary.iterdir() if path.name.startswith("collbench-")] == [], err
        return self.process.returncode, err

    def ranks(self, side: str) -> list[int]:
        """The processes that measure on a side, by their numbers."""
        found = []
        for name in os.listdir("/proc"):  # noqa: PTH208 - names
            if name.isdigit():
                try:
                    command = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                    variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                of_test = any(str(self.temporary).encode() in word for word in command)
                is_rank = b"run" in command and any(
                    one.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")) for one in variables
                )
                other = b"COLLBENCH_TEST_SIDE=other" in variables
                if of_test and is_rank and other == (side == "other"):
                    found.append(int(name))
        return sorted(found)

    def records(self) -> dict[tuple[str | None, int, int], Record]:
        """By side, size and launch; each is there once."""
        records = read_run(self.run).records
        found = {(one.case.where.side, int(str(one.case["size"])), one.launch): one for one in records}
        assert len(found) == len(records)
        return found

    def recorded(self) -> int:
        """Records on disk so far."""
        path = self.run / "records.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def measures(self) -> bool:
        """Whether all ranks of both sides are in their turns: those that have opened their pipes."""
        return all(len([rank for rank in self.ranks(side) if takes_turns(rank)]) == 2 for side in ("base", "other"))


def takes_turns(rank: int) -> bool:
    """Whether a rank has opened its pipe."""
    try:
        descriptors = list(Path(f"/proc/{rank}/fd").iterdir())
        return any("/turns/orders-" in os.readlink(one) for one in descriptors)  # noqa: PTH115
    except OSError:
        return False


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    made = Launch(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:  # of a test that failed
        os.killpg(made.process.pid, signal.SIGKILL)
        made.process.communicate()


def hows(launch: Launch) -> dict[tuple[str | None, int], str | None]:
    """Of the first launch how each case was measured, or why alone, or its status."""
    return {
        (side, size): record.how if record.how == "duet" else record.alone if record.status == "ok" else record.status
        for (side, size, number), record in launch.records().items() if number == 0
    }  # fmt: skip


@pytest.mark.mpi
def test_two_sides_measure_in_turns(launch: Launch) -> None:
    launch.start(launches=2)
    code, err = launch.ended()
    assert code == 0, err
    found = launch.records()
    assert set(found) == set(itertools.product(("base", "other"), (8, 64 << 10), (0, 1)))
    for (side, size, number), record in found.items():
        assert (record.status, record.how, record.alone) == ("ok", "duet", None), (err, record.reason)
        duet, other = record.duet, found["base" if side == "other" else "other", size, number].duet
        assert duet is not None and other is not None and record.seconds is not None and record.samples is not None
        assert duet.worlds == 2
        assert {duet.started, other.started} == {0, 1}
        assert_slept([duet, other], ranks=2)
        assert 0.2 < duet.seconds / record.seconds.p50 < 5
        for mine, beside in zip(duet.slices, other.slices, strict=True):
            assert {mine.place, beside.place} == {0, 1}
            first, second = sorted((mine, beside), key=lambda one: one.place)
            assert first.start + 0.9 * SliceRule().seconds < second.start, (
                "the second one waits until the first has measured"
            )
            assert mine.n >= 10 and mine.slept > 0.0


@pytest.mark.mpi
@pytest.mark.parametrize("side", ["base", "other"])
def test_a_rank_that_dies_in_a_slice_leaves_the_other_side_whole(launch: Launch, side: str) -> None:
    launch.start()
    wait_for(launch.measures)
    wait_for(lambda: one_is_measuring(launch, side))
    os.kill(launch.ranks(side)[-1], signal.SIGKILL)
    code, err = launch.ended()
    assert code == 1, err
    found, beside = hows(launch), "base" if side == "other" else "other"
    assert {found[beside, size] for size in (8, 64 << 10)} <= {"duet", "partner"}
    assert "partner" in {found[beside, size] for size in (8, 64 << 10)}
    assert [how for (of, _), how in found.items() if of == side].count("failed") == 1
    assert launch.ranks("base") == launch.ranks("other") == []


def one_is_measuring(launch: Launch, side: str) -> bool:
    """Whether a rank of a side is on a processor now."""
    return any(state(rank) == "R" for rank in launch.ranks(side))


def state(rank: int) -> str:
    """`R` runs, `S` sleeps (proc_pid_stat(5))."""
    try:
        return Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.mpi
def test_a_rank_that_stops_is_waited_for_as_long_as_the_plan_says(launch: Launch) -> None:
    launch.start(timeout="4s", more='budget = "1s"')
    wait_for(launch.measures)
    stopped = launch.ranks("other")[-1]
    os.kill(stopped, signal.SIGSTOP)
    code, err = launch.ended()
    assert code == 1, err
    found = hows(launch)
    assert {found["base", size] for size in (8, 64 << 10)} <= {"duet", "partner"}
    assert [how for (side, _), how in found.items() if side == "other"].count("failed") == 1
    assert launch.ranks("base") == launch.ranks("other") == []


@pytest.mark.mpi
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_interrupted_and_resumed(launch: Launch, send: Callable[[int, int], None]) -> None:
    """The signal goes to the driver alone, or to all, as from a terminal."""
    launch.start(launches=2)
    wait_for(launch.measures)
    wait_for(lambda: one_is_measuring(launch, "base"))
    assert launch.process is not None
    send(launch.process.pid, signal.SIGINT)
    code, err = launch.ended()
    assert code == 130, err
    assert launch.ranks("base") == launch.ranks("other") == []
    kept = launch.records() if launch.recorded() else {}
    assert {key[1:] for key in kept if key[0] == "base"} == {key[1:] for key in kept if key[0] == "other"}
    launch.start(launches=2, resume=True)
    code, err = launch.ended()
    assert code == 0, err
    found = launch.records()
    assert len(found) == 8
    assert {record.how for record in found.values()} == {"duet"}


#: A thread of a side computes all the time, as the progress threads of some libraries do.
COMPUTES = """
import os, threading
def compute():
    while True:
        sum(range(10000))
rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
if rank == "0" and os.environ.get("COLLBENCH_TEST_SIDE") == "other":
    threading.Thread(target=compute, daemon=True).start()
"""


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_side_that_computes_while_it_sleeps_is_measured_in_blocks(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(COMPUTES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    launch.start()
    code, err = launch.ended()
    assert code == 0, err
    assert set(hows(launch).values()) == {"awake"}
    assert len(launch.records()) == 4


# A gate for real ------------------------------------------------------------------------------------------------------

#: A broadcast of 256 KiB in pieces of 1 KiB takes ten times as long; one of 64 B is one piece.
PIECES = {
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_bcast_algorithm": "3",
    "OMPI_MCA_coll_tuned_bcast_algorithm_segmentsize": "1024",
}
SLOWER = [word for name, value in PIECES.items() for word in ("--other", f"env={name}={value}")]

#: Nothing here depends on an idle machine, or on one with a core for each rank.
ACCEPTED = [word for name in ("contended", "oversubscribed", "late", "drift") for word in ("--accept", name)]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Two sizes, on either side of what the parameters change."""
    if mpi_vendor() != "openmpi":
        pytest.skip("the parameters are Open MPI's")
    path = tmp_path / "plan.toml"
    path.write_text('collectives = ["bcast"]\nsizes = ["64", "256K"]\niters = 30\n')
    return path


def gate(plan: Path, out: Path, *arguments: str) -> tuple[Ended, dict[str, Any]]:
    """How it ended, and the document that it printed."""
    asked = [str(plan), "--out", str(out), "-n", "2", "--launches", "6", "--margin", "50%", "--style", "json"]
    ended = finish([sys.executable, "-m", "collbench", "gate", *asked, *ACCEPTED, *arguments])
    return ended, json.loads(ended.out) if ended.out else {}


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_parameters_that_slow_large_messages_down_are_a_loss_there_alone(plan: Path, tmp_path: Path) -> None:
    ended, told = gate(plan, tmp_path / "gate", *SLOWER)
    assert ended.code == 1, ended.err
    answers = {cell["base"]["what"]["size"]: cell["answer"] for cell in told["cells"]}
    assert answers[256 << 10] == "loss"
    assert answers[64] != "loss"
    assert told["planned"] == 2


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_the_same_twice_is_no_loss(plan: Path, tmp_path: Path) -> None:
    ended, told = gate(plan, tmp_path / "gate")
    assert ended.code in (0, 4), ended.err
    assert told["lost"] == 0
    assert told["notes"]


def copied_library(folder: Path) -> Path:
    """The MPI library with a byte more, beside what it needs: another build, as far as a hash can tell."""
    load_mpi()
    original = Path(library_path() or "")
    folder.mkdir()
    for beside in original.parent.iterdir():
        if beside.name != original.name and (".so" in beside.name or beside.name == "openmpi"):
            (folder / beside.name).symlink_to(beside)
    copy = folder / original.name
    copy.write_bytes(original.read_bytes() + b"\0")
    return copy


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_library_put_in_front_is_the_one_that_the_ranks_loaded(plan: Path, tmp_path: Path) -> None:
    copy = copied_library(tmp_path / "lib")
    ended, told = gate(plan, tmp_path / "gate", "--other", f"preload={copy}")
    assert ended.code in (0, 1, 4), ended.err
    assert "not verified" not in {cell["reason"] for cell in told["cells"]}
    assert any(line.startswith("library-file: ") for line in told["differences"])
    notes = {note for line in (tmp_path / "gate" / "records.jsonl").read_text().splitlines()
             if json.loads(line)["case"]["where"]["side"] == "other"
             for note in json.loads(line)["notes"] if note.startswith("loaded")}  # fmt: skip
    assert len(notes) == 1
    assert f"loaded libmpi.so: {os.path.realpath(copy)} " in notes.pop()


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_library_that_something_else_goes_before_is_no_answer(plan: Path, tmp_path: Path) -> None:
    """mpi4py loads libmpi by the path where it found it, which LD_LIBRARY_PATH does not change."""
    copy = copied_library(tmp_path / "lib")
    beside = f"env=LD_LIBRARY_PATH={copy.parent}:{copy.parent / 'openmpi'}"  # a link to it finds nothing beside itself
    ended, told = gate(plan, tmp_path / "gate", "--base", beside, "--other", beside, "--other", f"lib={copy}")
    assert ended.code == 4, ended.err
    assert {cell["reason"] for cell in told["cells"]} == {"not verified"}
    assert all(f"preload={copy}" in cell["why"] for cell in told["cells"])
    assert "stopped: other" in ended.err


# The self-test for real -----------------------------------------------------------------------------------------------

SELFTEST = (sys.executable, "-m", "collbench", "selftest")


@pytest.fixture
def plan_selftest(tmp_path: Path) -> Path:
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


@pytest.mark.mpi
def test_more_ranks_than_cores_are_measured(plan_selftest: Path, tmp_path: Path) -> None:
    """The launcher is told; on a machine with one core the default of two ranks is such a case."""
    ranks = len(os.sched_getaffinity(0)) + 1
    out = tmp_path / "kept"
    more = ("--launches", "6", "-n", str(ranks), "--out", str(out), "--style", "json")
    ended = finish([*SELFTEST, "--plan", str(plan_selftest), *more])
    assert ended.code == 0, ended.err
    assert len(json.loads(ended.out)["cells"]) == 2
    records = read_run(out).records
    launches = {(one.launch, one.case.where.side, one.case.where.ranks, one.oversubscribed) for one in records}
    assert launches == {(number, side, ranks, True) for number in range(6) for side in ("base", "other")}
    (said,) = (line for line in ended.err.splitlines() if line.startswith("# oversubscribed: "))
    assert [int(number) for number in re.findall(r"[0-9]+", said)] == [ranks, len(rank_facts().physical)]


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_the_same_under_two_names_is_measured_in_blocks_and_judged(plan_selftest: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    ended = finish(
        [*SELFTEST, "--plan", str(plan_selftest), "--launches", "6", "-n", "2", "--out", str(out), "--style", "json"]
    )
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert [cell["size"] for cell in found["cells"]] == [8, 1024]
    # of 64 ways to swap 6 launches each of two sizes may exclude equality in the two farthest, at a level of 5 %
    assert found["false_positive_rate"] in (0, 2 / 64, 4 / 64)
    run = read_run(out)
    launches = {(record.launch, record.case.where.side) for record in run.records}
    assert launches == {(number, side) for number in range(6) for side in ("base", "other")}


@pytest.mark.mpi
def test_a_launch_without_progress_is_ended(tmp_path: Path) -> None:
    plan_selftest = tmp_path / "plan.toml"
    plan_selftest.write_text('collectives = ["allreduce"]\nsizes = ["1M"]\niters = 1000000\n')
    ended = finish([*SELFTEST, "--plan", str(plan_selftest), "--timeout", "4", "-n", "2"])
    assert ended.code == 1, ended.err
    assert re.search(r"\b\d+ s\b", ended.err), ended.err
    wait_for(lambda: not named(str(plan_selftest)))


def ended_by(number: int, tmp_path: Path) -> tuple[int, Path]:
    """The exit code of a selftest that got a signal while ranks measured, and its temporary folder."""
    plan_selftest, place = tmp_path / "plan.toml", tmp_path / "tmp"
    place.mkdir()
    plan_selftest.write_text('collectives = ["allreduce"]\nsizes = ["1M"]\niters = 1000000\n')
    job = subprocess.Popen(
        [*SELFTEST, "--plan", str(plan_selftest), "-n", "2"], env=environment() | {"TMPDIR": str(place)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(lambda: [*place.glob("*/out/records.jsonl")])
    job.send_signal(number)
    job.communicate(timeout=LIMIT)
    wait_for(lambda: not named(str(tmp_path)))  # its ranks too: a driver that was killed does not wait for them
    return job.returncode, place


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    code, place = ended_by(number, tmp_path)
    assert code == 130
    assert list(place.iterdir()) == []


@pytest.mark.mpi
def test_a_killed_selftest_takes_its_ranks_along_and_its_folder_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, place = ended_by(signal.SIGKILL, tmp_path)
    assert code == -signal.SIGKILL
    left = {str(path) for path in place.glob("collbench-*")}
    assert any(path.startswith(str(place / "collbench-selftest-")) for path in left)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    assert set(sweep_folders(set())) == left


@pytest.mark.mpi
def test_a_launch_that_fails_is_quoted(tmp_path: Path) -> None:
    plan_selftest = tmp_path / "plan.toml"
    plan_selftest.write_text('collectives = ["allredcue"]\nsizes = ["8"]\n')
    ended = finish([*SELFTEST, "--plan", str(plan_selftest), "-n", "2"])
    assert ended.code == 2
    assert "allredcue" in ended.err and "allreduce?" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.mpi
def test_under_mpirun_it_is_refused(mpirun: Command) -> None:
    ended = finish(mpirun(1, "selftest"))
    assert ended.code == 2
    assert "selftest" in ended.err and "mpirun" in ended.err and ended.err.count("collbench: ") == 1


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_the_folder_for_runs_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("")
    ended = finish([*SELFTEST, "--out", str(tmp_path / "there")])
    assert ended.code == 2
    assert "not empty" in ended.err


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_without_an_mpirun_it_says_where_to_get_one(tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").symlink_to(Path(sys.executable).resolve())
    assert (BIN / "mpirun").exists()
    variables = environment() | {"PATH": str(bare), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run([str(bare / "python3"), "-m", "collbench", "selftest"], env=variables, capture_output=True,
                           text=True, timeout=LIMIT, check=False)  # fmt: skip
    assert ended.returncode == 2
    assert to_install("openmpi") in ended.stderr


# Launches on the host leave readings before and after each of them, and a run that is resumed goes on with them

WITH_YARDSTICKS = """
collectives = ["allreduce"]
images = ["{image}"]
policies = ["host"]
sizes = ["8", "1K"]
ranks = [2]
launches = 3
iters = 20
oversubscribe = true
"""


def command(folder: Path, *more: str) -> list[str]:
    plan = folder / "plan.toml"
    plan.write_text(WITH_YARDSTICKS.format(image=mpi_vendor()))
    return [sys.executable, "-m", "collbench", "launch", str(plan), *more]


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_run_has_readings_and_a_resumed_one_has_more(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = subprocess.Popen(
        command(tmp_path, "--out", str(run)), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    path = run / READINGS
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= 3)  # in the second launch
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=LIMIT)
    assert job.returncode == 130
    begun = (run / READINGS).read_bytes()
    ended = finish(command(tmp_path, "--resume", str(run)))
    assert ended.code == 0, ended.err
    assert (run / READINGS).read_bytes().startswith(begun), "lines are appended"

    found, readings = read_run(run), read_readings(run)
    moments: dict[int, list[str]] = {}
    for one in readings:
        moments.setdefault(one.launch, []).append(one.moment)
    assert sorted(moments) == [0, 1, 2]
    assert all(of_launch[0] == "before" and of_launch[-2:] == ["before", "after"] for of_launch in moments.values())
    assert {one.cells for one in readings} == {(record.case.where,) for record in found.records}
    if len(os.sched_getaffinity(0)) > 1:
        assert {one.reason for one in readings} == {None}
    assert all(one.values.keys() == set(yardsticks.YARDSTICKS) for one in readings)
    experiment = found.manifest.experiment
    assert experiment is not None
    assert experiment.yardsticks == yardsticks.resolutions()
    for reading in (["show", str(run)], ["pack", str(run)], ["show", str(run)]):
        assert finish([sys.executable, "-m", "collbench", *reading]).code == 0


@pytest.mark.mpi
@pytest.mark.one_mpi
def test_a_selftest_refuses_nothing_and_says_what_moved(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('collectives = ["allreduce"]\nsizes = ["8"]\niters = 20\n')
    ended = finish([sys.executable, "-m", "collbench", "selftest", "--plan", str(plan), "--launches", "6", "-n", "2",
                    "--out", str(tmp_path / "run"), "--style", "json"])  # fmt: skip
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert said["cost"]["launches"] >= 6
    assert {name: one["readings"] for name, one in said["yardsticks"].items() if name != "core_distance"} == {
        "copy": 12, "core_speed": 12,  # both sides live at once
    }  # fmt: skip
