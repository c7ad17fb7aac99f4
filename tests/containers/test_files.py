"""The step `files` on a real engine: all but files and user is shared with the host, and nothing is left there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collbench.launch.folders import user_inside
from collbench.schema.record import Record
from collbench.schema.store import read_run
from tests.containers.conftest import Launch, Started, ended
from tests.containers.test_launch import by_step
from tests.containers.worlds import LADDER, LONG, disturbed, kill_container, ranks_of
from tests.processes import LIMIT, wait_for

PLAN = LADDER.replace('"strict", "limits", "ipc", "net", "visible"', '"files"')

#: Namespaces that are the host's, and that are not.
SHARED, OWN = ("ipc", "net", "pid", "uts"), ("mnt",)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at


def in_shared_memory() -> set[str]:
    """Files there of the user that ranks have."""
    found = set()
    for path in SHARED_MEMORY.iterdir():
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            if path.stat().st_uid == user_inside()[0]:
                found.add(path.name)
    return found


@pytest.fixture
def nothing_in_shared_memory() -> Iterator[None]:
    """Of this test's ranks."""
    before = in_shared_memory()
    yield
    assert in_shared_memory() <= before


def host(space: str) -> int:
    return Path(f"/proc/self/ns/{space}").stat().st_ino


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_ranks_are_in_the_namespaces_of_the_host(
    clean: Started, nothing_in_shared_memory: None, launch: Launch, tmp_path: Path, image: str
) -> None:
    code, out, err = ended(launch(PLAN.format(image=image, policies='"multi", "single"')))
    assert code == 0, (out, err)
    found = by_step(read_run(tmp_path / "run"))
    assert set(found) == {("multi", "files"), ("single", "files")}
    for (policy, _), records in found.items():
        assert [record.status for record in records] == ["ok", "ok"]
        for record in records:
            assert record.check is not None and record.check.wrong == 0
            assert record.ranks is not None
            assert record.ranks.binding == ("0", "1")
            assert record.ranks.container == (("c0", "c0") if policy == "multi" else ("c0", "c1"))
            assert_of_host(record, policy)
            told = [note for note in record.notes if "hang otherwise" in note]
            assert len(told) == (2 if (image, policy) == ("openmpi", "single") else 0), record.notes
    transports = {policy: record.transport or "" for (policy, _), (record, *_) in found.items()}
    between = {"openmpi": "ob1: tcp", "mpich": "ucx intra-node sysv/memory"}[image]
    assert transports["single"].startswith(between)
    assert transports["multi"] == {"openmpi": "ob1: sm", "mpich": "ch4 shm"}[image]


def assert_of_host(record: Record, policy: str) -> None:
    """As the ranks see it."""
    spaces = [one.namespaces for one in record.confinement]
    assert len(spaces) == (1 if policy == "multi" else 2)
    for one in record.confinement:
        assert {name: one.namespaces[name] for name in SHARED} == {name: host(name) for name in SHARED}
        assert not any(one.namespaces[name] == host(name) for name in OWN)
        space = os.statvfs(SHARED_MEMORY)
        assert one.shm == space.f_blocks * space.f_frsize
        assert set(one.capabilities) == {"SYS_NICE", "SYS_PTRACE"}
        assert one.seccomp and one.no_new_privileges
    assert len({space["mnt"] for space in spaces}) == len(spaces)


def kill_one_rank(started: Started) -> None:
    """By its number on the host: from inside the container, ranks of other launches would be seen too."""
    api = started.engine.api
    ranks = wait_for(lambda: ranks_of(started))
    rows = api.top(ranks[-1]["Id"], ps_args="-eo pid,args")["Processes"]
    numbers = [int(pid) for pid, words in rows if "bin/collbench run" in words and "mpirun" not in words]
    os.kill(numbers[-1], signal.SIGKILL)


@pytest.mark.docker
@pytest.mark.parametrize("disturb", [kill_container, kill_one_rank])
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_what_ends_in_the_middle_leaves_nothing(
    clean: Started, nothing_in_shared_memory: None, launch: Launch, tmp_path: Path, image: str,
    disturb: Callable[[Started], None],
) -> None:  # fmt: skip
    disturbed(clean, launch, tmp_path, image, disturb, step="files")


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_one_container_that_is_killed_leaves_nothing_in_shared_memory(
    clean: Started, nothing_in_shared_memory: None, launch: Launch, image: str
) -> None:
    """The library's own launcher dies with the ranks, and cannot remove what they have there."""
    plan = LONG.format(image=image, step="files", launches=1).replace('"single"', '"multi"')
    before = in_shared_memory()
    process = launch(plan)
    wait_for(lambda: in_shared_memory() - before)
    (container,) = (one for one in clean.containers() if one["Names"][0].endswith("-c0"))
    clean.engine.api.kill(container["Id"])
    code, _, err = ended(process)
    assert code == 1, err
    assert "died" in err


@pytest.mark.docker
def test_interrupted(clean: Started, nothing_in_shared_memory: None, launch: Launch) -> None:
    process = launch(LONG.format(image="mpich", step="files", launches=1))
    wait_for(lambda: ranks_of(clean))
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130, err


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_killed_driver_is_swept_with_what_its_ranks_left_in_shared_memory(
    started: Started, nothing_in_shared_memory: None, launch: Launch, image: str
) -> None:
    before = in_shared_memory()
    process = launch(LONG.format(image=image, step="files", launches=1).replace('"single"', '"multi"'))
    wait_for(lambda: in_shared_memory() - before)
    process.kill()
    process.communicate()
    left = in_shared_memory() - before  # its ranks may have removed some
    sweep = [sys.executable, "-m", "collbench", "launch", "--sweep"]
    swept = subprocess.run(sweep, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
    assert started.containers() == []
    assert all(name in swept for name in left)
    assert in_shared_memory() <= before


@pytest.mark.docker
def test_doctor_in_such_a_container() -> None:
    command = [sys.executable, "-m", "collbench", "doctor", "--image", "mpich", "--isolation", "files"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mpich, single, files: the first of 2 containers" in done.stdout
