"""What two real processes hold in common: writable memory, files, pipes, connections, the temporary folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench.run.turns import shareable

#: A process that does what it is told, and then tells what it holds until its input ends.
HOLDS = """
import ctypes, json, mmap, os, socket, sys, tempfile
from multiprocessing import resource_tracker, shared_memory
from collbench.run.turns import shareable

def mapped(descriptor, prot=3, flags=1):
    "Read and write, shared, unless it is said; the descriptor is closed: the mapping alone can tell."
    mmap = ctypes.CDLL(None).mmap
    mmap.restype = ctypes.c_void_p
    assert mmap(None, ctypes.c_size_t(4096), prot, flags, descriptor, ctypes.c_long(0)) != ctypes.c_void_p(-1).value
    os.close(descriptor)

{body}
print(json.dumps(sorted(shareable(frozenset(globals().get("own", ()))))), flush=True)
sys.stdin.read()
"""

Holding = Callable[..., frozenset[str]]


@pytest.fixture
def holding() -> Iterator[Holding]:
    """`holding(body, temporary, fds)`: what a process holds that did `body`; it lives until the test ends."""
    with contextlib.ExitStack() as stack:

        def start(body: str, temporary: Path | None = None, fds: tuple[int, ...] = ()) -> frozenset[str]:
            folder = temporary or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLDS.format(body=body)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    env=os.environ | {"TMPDIR": str(folder)}, pass_fds=fds,
                )
            )  # fmt: skip
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, "it ended before it told anything"
            return frozenset(json.loads(line))

        yield start


def kinds(names: frozenset[str]) -> set[str]:
    """The first words."""
    return {name.rpartition(" ")[0].partition(" ")[0] for name in names}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("", "temporary"),
        ("memory = mmap.mmap(-1, 4096)", "memory"),
        ("server = socket.create_server(('127.0.0.1', 0))", "connection"),
    ],
)
def test_processes_that_share_nothing_hold_nothing_in_common(holding: Holding, body: str, kind: str) -> None:
    """Memory of a child without a file too: the kernel gives each such mapping an inode of its own."""
    one, other = holding(body), holding(body)
    assert kind in kinds(one) and one & other == frozenset()


# Memory and files ----------------------------------------------------------------------------------------------------

MAPPED = "mapped(os.open({path!r}, os.O_RDWR))"


@pytest.mark.parametrize(
    ("body", "common"),
    [
        (MAPPED, {"memory"}),
        ("mapped(os.open({path!r}, os.O_RDWR), flags=2)", set()),
        ("mapped(os.open({path!r}, os.O_RDWR), prot=1)", set()),
        ("file = open({path!r}, 'rb')", set()),
        ("file = open({path!r}, 'wb')", {"file"}),
        ("file = open({path!r}, 'r+b')", {"file"}),
        ("file = open({path!r}, 'ab')", {"file"}),
    ],
)
def test_a_file_that_is_mapped_or_open(holding: Holding, tmp_path: Path, body: str, common: set[str]) -> None:
    """Not where it is mapped as private, or only read."""
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(4096))
    one, same, other = (holding(body.format(path=str(tmp_path / name))) for name in "aab")
    assert kinds(one & same) == common and one & other == frozenset()


def test_a_file_that_is_mapped_by_another_name(holding: Holding, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(4096))
    os.link(tmp_path / "a", tmp_path / "b")
    one, other = (holding(MAPPED.format(path=str(tmp_path / name))) for name in "ab")
    assert kinds(one & other) == {"memory"}


def test_posix_shared_memory(holding: Holding) -> None:
    name = f"collbench-test-{os.getpid()}"
    make = "shm = shared_memory.SharedMemory({name!r}, create={create}, size=4096)"
    keep = f"{make}; resource_tracker.unregister(shm._name, 'shared_memory')"
    try:
        one = holding(keep.format(name=name, create=True))
        same = holding(keep.format(name=name, create=False))
        other = holding(keep.format(name=f"{name}-other", create=True))
        assert "memory" in kinds(one & same)
        assert one & other == frozenset()
    finally:
        for made in (name, f"{name}-other"):
            (Path("/dev/shm") / made).unlink(missing_ok=True)  # noqa: S108 - that is where it is


def test_memory_without_a_name(holding: Holding) -> None:
    descriptor = os.memfd_create("test", 0)
    try:
        os.truncate(descriptor, 4096)
        body = f"mapped({descriptor})"
        one, same = holding(body, fds=(descriptor,)), holding(body, fds=(descriptor,))
        other = holding("fd = os.memfd_create('test', 0); os.truncate(fd, 4096); mapped(fd)")
    finally:
        os.close(descriptor)
    assert kinds(one & same) == {"memory"}
    assert one & other == frozenset()


SEGMENT = """
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
assert libc.shmat({number}, None, 0) not in (None, ctypes.c_void_p(-1).value)
"""


def test_a_segment_of_system_v(holding: Holding) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    numbers = [libc.shmget(0, ctypes.c_size_t(4096), 0o600 | 0o1000) for _ in range(2)]
    if -1 in numbers:
        pytest.skip(f"this system has no segments of System V: {os.strerror(ctypes.get_errno())}")
    try:
        one, same, other = (holding(SEGMENT.format(number=numbers[which])) for which in (0, 0, 1))
    finally:
        for number in numbers:
            libc.shmctl(number, 0, None)
    assert kinds(one & same) == {"segment"}
    assert one & other == frozenset()


def test_a_pipe_with_a_name(holding: Holding, tmp_path: Path) -> None:
    """Whichever end is open; those that the caller knows of are left out."""
    os.mkfifo(tmp_path / "a")
    path = str(tmp_path / "a")
    one, other = holding(f"fd = os.open({path!r}, os.O_RDWR)"), holding(f"fd = os.open({path!r}, 2048)")
    assert kinds(one & other) == {"pipe"}
    assert "pipe" not in kinds(holding(f"fd = os.open({path!r}, os.O_RDWR); own = [fd]"))


def test_standard_streams_are_those_of_whoever_starts_a_process(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        body = "import json, sys; from collbench.run.turns import shareable; sys.exit(len([n for n in "
        body += "shareable() if n.startswith(('file', 'pipe'))]))"
        assert subprocess.run([sys.executable, "-c", body], stdout=log, check=False).returncode == 0


# Connections ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_both_ends_of_a_connection_have_one_name(holding: Holding, address: str) -> None:
    try:
        server = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with server:
        port = server.getsockname()[1]
        one = holding(f"connection = socket.create_connection(({address!r}, {port}))")
        accepted, _ = server.accept()
        with accepted, socket.create_connection((address, port)) as beside:
            other, third = (holding("", fds=(end.fileno(),)) for end in (accepted, beside))
    assert kinds(one & other) == {"connection"} and one & third == frozenset()


def test_a_listening_socket_that_two_have_is_shared(holding: Holding) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one, other = (holding("", fds=(server.fileno(),)) for _ in range(2))
    assert kinds(one & other) == {"connection"}


# The temporary folder ------------------------------------------------------------------------------------------------


def test_the_temporary_folder(holding: Holding, tmp_path: Path) -> None:
    one, same, other = (holding("", tmp_path), holding("", tmp_path), holding(""))
    assert kinds(one & same) == {"temporary"}
    assert one & other == frozenset()


def test_what_the_kernel_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of /proc can be read, and no error ends a rank. How a file was opened it could not say either."""
    original: Any = Path.read_text

    def refuse(path: Path, *arguments: Any, **more: Any) -> str:
        if str(path).startswith("/proc"):
            raise PermissionError(13, "denied")
        return str(original(path, *arguments, **more))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert kinds(shareable()) <= {"temporary", "file", "pipe"}
