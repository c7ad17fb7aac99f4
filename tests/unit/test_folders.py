"""Who drives a launch: signatures in temporary folders, their locks, and whom one believes."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest

from collbench.launch.folders import driver_identity, folders, namespace, opened, sign, signature_of, signed
from collbench.machine.facts import machine_id
from collbench.schema.plan import Plan

NOBODY = 4242
PLAN = Plan(title="inner", collectives=("bcast",))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one place of temporary folders, in which nobody else's launches are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("collbench.launch.folders._MORE_PLACES", ())
    return tmp_path


def folder_of(place: Path, name: str = "collbench-a", signature: str | None = "me") -> Path:
    (folder := place / name).mkdir()
    if signature is not None:
        (folder / "driver").write_text(signature, encoding="utf-8")
    return folder


def test_a_driver_is_named_by_boot_namespace_number_and_start() -> None:
    machine, pid_namespace, pid, started, time_namespace = driver_identity().rsplit("/", 4)
    assert (machine, pid_namespace, pid) == (machine_id(), str(namespace("pid")), str(os.getpid()))
    fields = Path(f"/proc/{os.getpid()}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    assert started == fields[19], "the 22nd of proc(5), of which two stand before"
    assert namespace("pid") == Path("/proc/self/ns/pid").stat().st_ino
    assert time_namespace == str(namespace("time"))


def test_a_signature_is_locked_before_it_has_its_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, locked = folder_of(place, signature=None), list[list[str]]()
    lock = fcntl.flock

    def locking(file: Any, how: int) -> None:
        locked.append(sorted(path.name for path in folder.iterdir()))
        assert how == fcntl.LOCK_EX | fcntl.LOCK_NB
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", locking)
    with sign(folder) as signature:
        assert not signature.closed
        assert locked == [["driver.draft"]]
        assert (folder / "driver").read_text() == driver_identity()
        assert [path.name for path in folder.iterdir()] == ["driver"]


def refusing(number: int) -> Callable[..., Any]:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_without_locks_a_folder_is_signed_and_its_lock_unknown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.EOPNOTSUPP))
    folder = folder_of(place, signature=None)
    with sign(folder):
        assert signature_of(folder) == (driver_identity(), None)


def test_a_signature_that_cannot_be_written_leaves_no_open_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[IO[str]] = []
    usual = Path.open

    def opening(path: Path, *how: Any, **more: Any) -> Any:
        made.append(usual(path, *how, **more))
        return made[-1]

    monkeypatch.setattr(Path, "open", opening)
    (folder_of(place, signature=None) / "driver").mkdir()  # no file can take its name
    with pytest.raises(OSError, match="driver"):
        sign(place / "collbench-a")
    assert [file.closed for file in made if file.mode == "w"] == [True]


def test_of_a_signature_so_much_is_read_as_one_can_be_long(place: Path) -> None:
    assert signature_of(folder_of(place, signature="x" * 200)) == ("x" * 200, False)
    assert signature_of(folder_of(place, "collbench-b", "x" * 5000)) == ("x" * 200, False)


def test_links_are_not_followed_and_pipes_not_waited_for(place: Path) -> None:
    (place / "secret").write_text("secret")
    (place / "link").symlink_to(place / "secret")
    os.mkfifo(place / "pipe")
    with pytest.raises(OSError, match="link"):
        opened(place / "link")
    with opened(place / "pipe") as pipe:
        assert pipe.read() == ""
    with opened(place / "secret") as file:
        assert file.read() == "secret"
        assert not file.writable()


def owned_by_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests: the folder belongs to neither root nor us."""
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        monkeypatch.setattr(os, "getuid", lambda: NOBODY + 1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: os.stat(folder).st_uid + 1)  # noqa: PTH116


def test_folders_that_are_signed_are_found_in_order_and_no_others(place: Path) -> None:
    for name in ("collbench-b", "collbench-a"):
        folder_of(place, name, name)
    folder_of(place, "collbench-unsigned", None)
    folder_of(place, "collbench-odd", "\u00e9")
    folder_of(place, "another", "me")
    (place / "collbench-link").symlink_to(place / "collbench-a")
    (place / "collbench-file").write_text("me")
    with sign(folder_of(place, "collbench-c", None)):
        assert list(signed()) == [
            (place / "collbench-a", "collbench-a", False),
            (place / "collbench-b", "collbench-b", False),
            (place / "collbench-c", driver_identity(), True),
        ]


def test_a_free_lock_is_believed_of_ones_own_folder_and_of_roots(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody could sign as a driver that lives; only a lock that is held says something there."""
    folder = folder_of(place)
    assert [locked for *_, locked in signed()] == [False]
    owned_by_another(folder, monkeypatch)
    assert [locked for *_, locked in signed()] == [None]
    with (folder / "driver").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert [locked for *_, locked in signed()] == [True]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of root's")
def test_roots_folder_is_believed_by_everybody(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(place)
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    assert [locked for *_, locked in signed()] == [False]


# The folders of a launch ---------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_launch_has_folders_of_its_own_and_leaves_none(place: Path) -> None:
    with folders(PLAN, (os.getuid(), os.getgid()), "0-3") as launch:
        root = launch.plan.parent
        assert root.parent == place and root.name.startswith("collbench-")
        assert (root / "cores").read_text() == "0-3"
        assert msgspec.json.decode(launch.plan.read_bytes(), type=Plan) == PLAN
        assert (mode(root), mode(launch.plan), mode(launch.out), mode(launch.relay)) == (0o711, 0o644, 0o700, 0o700)
        assert {launch.out.parent, launch.relay.parent} == {root}
        assert signature_of(root) == (driver_identity(), True)
        (launch.out / "left").write_text("by a world")
    assert list(place.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders to another user")
def test_root_gives_what_ranks_write_to_their_user(place: Path) -> None:
    with folders(PLAN, (NOBODY, NOBODY + 1)) as launch:
        for path in (launch.out, launch.relay):
            assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY + 1)
        assert launch.plan.stat().st_uid == 0


def test_nobody_else_gives_folders_away(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    monkeypatch.setattr(os, "chown", lambda *_: pytest.fail("was called"))
    with folders(PLAN, (NOBODY, NOBODY)):
        pass


def test_what_cannot_be_made_whole_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgspec.json, "encode", refusing(errno.ENOSPC))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)), folders(PLAN, (os.getuid(), os.getgid())):
        pytest.fail("they were made")
    assert list(place.iterdir()) == []


#: Makes folders where only so many more descriptors are left, and takes all of them inside.
WITHOUT_DESCRIPTORS = """
import contextlib, os, resource, sys
from collbench.launch.folders import folders
from collbench.schema.plan import Plan
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
def take():
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
made = left = 0
for free in range(14):
    taken = []
    take()
    for _ in range(free):
        os.close(taken.pop())
    with contextlib.suppress(OSError), folders(Plan(), (os.getuid(), os.getgid())):
        made += 1
        take()
    for one in taken:
        os.close(one)
    left += len(os.listdir(os.environ["TMPDIR"]))
print(made > 0, left)
"""


def test_a_folder_is_removed_where_there_are_no_more_descriptors(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS], env=os.environ | {"TMPDIR": str(tmp_path)},
                           capture_output=True, text=True, check=True, timeout=60)  # fmt: skip
    assert ended.stdout.split() == ["True", "0"]
