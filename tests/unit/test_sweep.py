"""What is left of a dead driver, and folders and shared memory that are removed."""

from __future__ import annotations

import datetime
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collbench.launch import folders
from collbench.launch.engines import docker as sweep_module
from collbench.launch.engines.docker import sweep
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.spec import DRIVER_LABEL, RUN_LABEL
from collbench.launch.folders import YOUNG, driver_identity, is_dead, namespace, remove_folder, remove_left
from collbench.machine.facts import machine_id

NOW = time.time()
OLD = NOW - 2 * YOUNG

#: This driver, and one whose number no process has.
ALIVE = driver_identity()
START, SPACE, NUMBER, STARTED, CLOCK = ALIVE.split("/")
DEAD = f"{START}/{SPACE}/999999999/1/1"

#: A driver in a PID namespace that this test is not in, and one on another machine.
INSIDE, REMOTE = f"{machine_id()}/1/17/4711/1", "another-boot/1/17/4711/1"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder in which nobody else's launches are, and little patience with ranks that end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(folders, "PATIENCE", 0.2)


@pytest.mark.parametrize(
    ("driver", "locked", "busy", "dead"),
    [
        (ALIVE, None, False, False), (DEAD, None, True, True),
        (f"{START}/{SPACE}/{NUMBER}/{int(STARTED) + 1}/{CLOCK}", None, True, True),  # its number came again
        (f"{START}/{SPACE}/{NUMBER}/{int(STARTED) + 1}/{int(CLOCK) + 1}", None, False, False),
        *((elsewhere, None, False, True) for elsewhere in (INSIDE, REMOTE)),
        *((elsewhere, None, True, False) for elsewhere in (INSIDE, REMOTE)),
        *((elsewhere, True, False, False) for elsewhere in (INSIDE, REMOTE)),
        (INSIDE, False, True, True), (REMOTE, False, True, False),  # of this machine locks are seen from everywhere
        *((label, None, False, False) for label in (  # that no driver wrote
            "", "strange", "a/b/c/d/e", "a/1/²/3/4", "../1/2/3/4/5", f"a/1/{'9' * 5000}/2/3", "a/1/\u0661/2/3",
            "a/1/2/3",
        )),
    ],
    ids=lambda value: "driver" if isinstance(value, str) else None,  # this process has other numbers in each worker
)  # fmt: skip
def test_who_is_dead(driver: str, locked: bool | None, busy: bool, dead: bool) -> None:
    assert is_dead(driver, locked=locked, busy=busy) == dead


def test_of_a_proc_that_speaks_of_others_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted from outside of this PID namespace, it shows other processes under these numbers."""
    monkeypatch.setattr(Path, "readlink", lambda path: Path("1"))
    assert not is_dead(DEAD, locked=None, busy=True)
    assert is_dead(DEAD, locked=None, busy=False)


def test_whose_number_proc_does_not_show_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc mounted with hidepid: the process of somebody else is there, and cannot be read."""

    def not_ours(number: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.kill", not_ours)
    assert not is_dead(DEAD, locked=None, busy=False)


# Containers, networks and folders of drivers --------------------------------------------------------------------------


class Engine(Docker):
    """Lists what it is told, and forgets what is removed."""

    def __init__(self, containers: list[dict[str, Any]], networks: list[dict[str, Any]]) -> None:
        self.containers, self.bridges = containers, networks

    def labelled(self, *labels: str) -> list[dict[str, Any]]:
        return list(self.containers)

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        return list(self.bridges)

    def remove(self, containers: list[dict[str, Any]], networks: list[dict[str, Any]]) -> None:
        self.containers = [container for container in self.containers if container not in containers]
        self.bridges = [bridge for bridge in self.bridges if bridge not in networks]

    def now(self) -> float:
        return NOW


def container(name: str, driver: str, state: str, created: float = OLD, network: str = "") -> dict[str, Any]:
    labels = {RUN_LABEL: "cb1", DRIVER_LABEL: driver}
    return {"Id": name, "Names": [f"/{name}"], "State": state, "Created": int(created), "Labels": labels,
            "HostConfig": {"NetworkMode": network}}  # fmt: skip


def network(name: str, driver: str, created: float = OLD) -> dict[str, Any]:
    moment = datetime.datetime.fromtimestamp(created, datetime.UTC).isoformat()
    return {"Id": name, "Name": name, "Created": moment, "Labels": {RUN_LABEL: "cb1", DRIVER_LABEL: driver}}


HOLDS = """
import sys, pathlib
from collbench.launch import folders
folders.namespace = lambda kind: 1
lock = folders.sign(pathlib.Path(sys.argv[1]))
print("signed", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["created", "running", "paused", "restarting", "exited"])
def test_a_driver_of_another_pid_namespace_that_holds_its_lock_is_alive(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "collbench-held"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "signed\n"
        driver, locked = folders.signature_of(folder)
        assert (driver.split("/")[1], locked) == ("1", True)
        assert [path.name for path in folder.iterdir()] == ["driver"]
        engine = Engine([container("c0", driver, state)], [network("net", driver)])
        assert sweep(engine) == ([], ["c0", "net"])
        assert folder.is_dir()
        process.kill()
    assert folders.signature_of(folder) == (driver, False)
    assert sweep(engine) == (["c0", "net", str(folder)], [])
    assert not folder.exists()


@pytest.mark.parametrize("driver", [INSIDE, REMOTE])
@pytest.mark.parametrize(
    ("containers", "networks"),
    [
        ([("c0", "running", OLD)], []), ([("c0", "paused", OLD)], []), ([("c0", "created", NOW)], []),
        ([("c0", "exited", NOW)], []), ([("c0", "exited", OLD), ("c1", "running", OLD)], [("net", OLD)]),
        ([], [("net", NOW)]), ([("c0", "created", OLD)], [("net", NOW)]),
    ],
)  # fmt: skip
def test_of_a_driver_that_cannot_be_seen_only_what_is_old_and_idle_is_removed(
    driver: str, containers: list[tuple[str, str, float]], networks: list[tuple[str, float]]
) -> None:
    names = [name for name, *_ in (*containers, *networks)]
    there = [container(name, driver, state, created) for name, state, created in containers]
    assert sweep(Engine(there, [network(name, driver, created) for name, created in networks])) == ([], names)
    idle = [container(name, driver, "exited") for name, *_ in containers]
    assert sweep(Engine(idle, [network(name, driver) for name, _ in networks])) == (names, [])


def test_what_ranks_of_killed_drivers_left_in_the_hosts_shared_memory_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """From when the first container in the host's namespaces was made, if its driver was in this PID namespace."""
    removed: list[tuple[int, float]] = []

    def remove_left(owner: int, since: float) -> list[str]:
        removed.append((owner, since))
        return ["sm_segment.vm.0.1.0"]

    monkeypatch.setattr(sweep_module, "remove_left", remove_left)
    with subprocess.Popen(["true"]) as process:  # a number that no process has
        pass
    here = f"{machine_id()}/{namespace('pid')}/{process.pid}/4711/{namespace('time')}"
    elsewhere = f"another-boot/{namespace('pid') + 1}/{process.pid}/4711/{namespace('time')}"
    others = [container("c0", here, "running"), container("c1", elsewhere, "exited", OLD - 1, "host")]
    unknown = container("c2", here, "exited", network="host") | {"Created": "soon"}
    assert sweep(Engine([*others, unknown], [])) == (["c0", "c1", "c2"], [])
    assert removed == []
    theirs = [container(f"c{number}", here, "exited", NOW - 100 * number, "host") for number in (3, 4)]
    assert sweep(Engine([*others, *theirs], [])) == (["c0", "c1", "c3", "c4", "sm_segment.vm.0.1.0"], [])
    assert removed == [(folders.user_inside()[0], int(NOW - 400))]


def test_a_signpost_leads_to_folders_of_dead_drivers_elsewhere(tmp_path: Path) -> None:
    post, elsewhere = tmp_path / "collbench-post", tmp_path / "elsewhere"
    dead, alive = elsewhere / "collbench-dead", elsewhere / "collbench-alive"
    for folder, driver in ((post, DEAD), (dead, DEAD), (alive, ALIVE)):
        (folder / "files").mkdir(parents=True)
        (folder / "driver").write_text(driver)
    for odd in ("relative", "", "/no/such/folder", "\0"):
        (post / "elsewhere").write_text(odd)
        assert dead not in [folder for folder, *_ in folders.signed()]
    (post / "elsewhere").write_text(str(elsewhere))
    assert set(folders.sweep_folders(set())) == {str(dead), str(post)}
    assert list(elsewhere.iterdir()) == [alive]


def test_folders_of_dead_drivers_are_removed_and_no_others(tmp_path: Path) -> None:
    busy = f"{START[::-1]}/1/2/3"
    drivers = {"dead": DEAD, "alive": ALIVE, "unsigned": None, "young": REMOTE, "busy": busy, "old": REMOTE,
               "old-busy": busy}  # fmt: skip
    for name, driver in drivers.items():
        folder = tmp_path / f"collbench-{name}"
        folder.mkdir()
        if driver is not None:
            (folder / "driver").write_text(driver)
        if name.startswith("old"):
            os.utime(folder, (OLD, OLD))
    (tmp_path / "collbench-link").symlink_to(tmp_path / "collbench-dead")
    assert folders.sweep_folders({busy}) == [str(tmp_path / f"collbench-{name}") for name in ("dead", "old")]
    left = [f"collbench-{name}" for name in ("alive", "busy", "link", "old-busy", "unsigned", "young")]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


# Folders that a world could write to are removed, whatever it made of them --------------------------------------------

#: Makes a folder that its owner cannot enter, one that it can only read, and removes all; as an ordinary user where it
#: is started by root.
CLOSED = """
import os, sys
from pathlib import Path
from collbench.launch.folders import remove_folder
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
root = Path(sys.argv[1]) / "root"
for name, mode in (("closed", 0), ("read-only", 0o500), ("listed", 0o400)):
    (root / name / "inner").mkdir(parents=True)
    (root / name / "file").touch()
    (root / name / "inner").chmod(0)
    (root / name).chmod(mode)
sys.exit(not remove_folder(root))
"""


@pytest.mark.slow
def test_a_folder_deeper_than_a_path_is_long(tmp_path: Path) -> None:
    """Folders in one another, made by descriptors, because the path is longer than the kernel takes."""
    (tmp_path / "root").mkdir()
    folder = os.open(tmp_path / "root", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=folder)
        os.close(os.open("file", os.O_CREAT, dir_fd=folder))
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    assert remove_folder(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


def test_links_in_a_folder_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept, root = tmp_path / "kept", tmp_path / "root"
    kept.mkdir()
    (kept / "file").touch()
    (root / "in").mkdir(parents=True)
    (root / "in" / "link").symlink_to(kept)
    (root / "link").symlink_to(kept)
    (root / os.fsdecode(b"\xff\xfe")).touch()
    os.mkfifo(root / "pipe")
    assert remove_folder(root)
    root.symlink_to(kept)
    assert not remove_folder(root)
    assert [path.name for path in kept.iterdir()] == ["file"]


def test_folders_that_were_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # another user cannot enter pytest's own folder
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        done = subprocess.run([sys.executable, "-c", CLOSED, place], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert list(Path(place).iterdir()) == []


def test_what_names_the_driver_stays_for_as_long_as_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    (root / "out").mkdir(parents=True)
    (root / "driver").write_text("me")

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        raise PermissionError(name)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        assert not remove_folder(root)
    assert (root / "driver").exists()
    assert remove_folder(root)


# What killed ranks leave in /dev/shm is removed; what others have there, or what is in use, is not --------------------


def left_behind(place: Path, name: str, age: float = 0.0) -> Path:
    path = place / name
    path.write_bytes(bytes(4096))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_files_of_libraries_are_removed_by_owner_age_and_name(tmp_path: Path) -> None:
    left = [left_behind(tmp_path, name) for name in ("mpich_shm_1a_0", "nccl-AbC123", "sm_segment.vm.0.1.0")]
    left_behind(tmp_path, "mpich_shm_2b_0", age=100)
    left_behind(tmp_path, "results")
    assert remove_left(os.getuid() + 1, time.time() - 50, tmp_path) == []
    assert remove_left(os.getuid(), time.time() - 50, tmp_path) == [path.name for path in left]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mpich_shm_2b_0", "results"]


def test_a_file_that_a_process_has_mapped_or_open_is_in_use(tmp_path: Path) -> None:
    mapped, opened = left_behind(tmp_path, "mpich_shm_1_0"), left_behind(tmp_path, "sm_segment.vm.0.1.0")
    with mapped.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    with opened.open("rb"):
        assert remove_left(os.getuid(), 0.0, tmp_path) == []
    assert remove_left(os.getuid(), 0.0, tmp_path) == [opened.name]
    memory.close()
    assert remove_left(os.getuid(), 0.0, tmp_path) == [mapped.name]


def test_ranks_that_are_ending_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PATIENCE", 60.0)
    path = left_behind(tmp_path, "mpich_shm_1_0")
    file = path.open("rb")
    threading.Timer(0.3, file.close).start()
    begun = time.monotonic()
    assert remove_left(os.getuid(), 0.0, tmp_path) == [path.name]
    assert 0.2 < time.monotonic() - begun < 50


def test_links_in_shared_memory_are_removed_and_not_followed(tmp_path: Path) -> None:
    """A rank may have made anything there."""
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "mpich_shm_1_0").symlink_to(tmp_path / "kept")
    assert remove_left(os.getuid(), 0.0, tmp_path) == ["mpich_shm_1_0"]
    assert (tmp_path / "kept").read_text() == "kept"
