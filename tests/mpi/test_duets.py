"""Duets of real ranks on the host: two sides in turns, a rank that dies or stops, Ctrl-C and what follows."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collbench.schema.record import Record
from collbench.schema.store import read_run
from collbench.schema.world import SliceRule
from tests.mpi.jobs import environment, mpi_vendor
from tests.processes import LIMIT, wait_for
from tests.turns import assert_slept

pytestmark = [pytest.mark.mpi]

PLAN = """
collectives = ["bcast"]
sizes = ["8", "64K"]
policies = ["host"]
images = ["{vendor}"]
environments = {{ {vendor} = "{environment}" }}
ranks = [2]
oversubscribe = true
launches = {launches}
gate = "barrier"
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
