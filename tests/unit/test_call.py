"""One execution of a program: calls, limits, folders that it works in."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.processes import LIMIT

from collbench.run import child as module
from collbench.run.child import ProgramFailed, prefix, working_folder

#: PyDLL keeps the interpreter lock during the call, as MPI_Init does.
STUCK = "import ctypes; ctypes.PyDLL(None).usleep(ctypes.c_uint({}))"


def run(before: str, microseconds: int) -> subprocess.CompletedProcess[str]:
    program = f"from collbench.timing import _loop; {before}; {STUCK.format(microseconds)}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=False)


def test_a_process_that_is_stuck_ends_with_the_message_and_the_code() -> None:
    done = run("_loop.set_limit(0.1, 'too late\\n', 3)", 600_000_000)
    assert (done.returncode, done.stderr) == (3, "too late\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "then",
    ["_loop.lift_limit()", "_loop.set_limit(60.0, 'later', 4)", "_loop.set_limit(60.0, '', 4); _loop.lift_limit()"],
)
def test_a_limit_that_is_lifted_or_replaced_does_nothing(then: str) -> None:
    done = run(f"_loop.set_limit(1.0, 'too late', 3); {then}", 1_500_000)
    assert (done.returncode, done.stderr) == (0, "")


# The folder of a program is removed at the end; that of a killed process by the next one, and no living one's

#: Works in a folder, says which, and waits.
WORKS = """
import sys, time
from collbench.run.child import working_folder
with working_folder(sys.argv[1]) as folder:
    (folder / "data").write_text("large")
    print(folder, flush=True)
    time.sleep(3600)
"""


@contextmanager
def another(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that works in a folder; it is killed at the end."""
    with subprocess.Popen((sys.executable, "-c", WORKS, str(parent)), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_it_is_empty_and_removed_with_everything_in_it(tmp_path: Path) -> None:
    with working_folder(str(tmp_path)) as folder:
        assert (folder.parent, list(folder.iterdir())) == (tmp_path, [])
        (folder / "deep" / "deeper").mkdir(parents=True)
    assert list(tmp_path.iterdir()) == []


def test_a_thread_that_ends_the_process_removes_it(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with working_folder(str(tmp_path)) as folder:
        (folder / "data").write_text("large")
        module.remove_held()
        assert list(tmp_path.iterdir()) == [tmp_path / "other"]


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    with another(tmp_path) as (_, living), another(tmp_path) as (killed, left):
        with working_folder(str(tmp_path)) as own:
            assert set(tmp_path.iterdir()) == {living, left, own}
        killed.send_signal(signal.SIGKILL)
        killed.wait(LIMIT)
        assert (left / "data").exists()
        with working_folder(str(tmp_path)) as own:
            assert set(tmp_path.iterdir()) == {living, own}
        assert (living / "data").read_text() == "large"


def test_what_is_not_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link, another machine's, a file, and what another user has."""
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / f"{prefix()}link").symlink_to(target)
    (tmp_path / f"{prefix()}file").write_text("")
    (tmp_path / f"{module.PREFIX}elsewhere.example-x").mkdir()
    kept = set(tmp_path.iterdir())
    with working_folder(str(tmp_path)) as own:
        assert set(tmp_path.iterdir()) == {*kept, own}
    (tmp_path / f"{prefix()}user").mkdir()
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with working_folder(str(tmp_path)):
        assert (tmp_path / f"{prefix()}user").exists()


def test_nobody_meets_a_folder_that_is_not_locked_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks, names = fcntl.flock, list[str]()

    def look(file: int, how: int) -> None:
        names.extend(path.name for path in tmp_path.iterdir())
        locks(file, how)

    monkeypatch.setattr(fcntl, "flock", look)
    with working_folder(str(tmp_path)) as folder:
        assert folder.name.startswith(prefix())
    (name,) = names
    assert name.startswith(module.DRAFT)


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProgramFailed, match=rf"/no/such: {os.strerror(errno.ENOENT)}"):
        working_folder("/no/such").__enter__()

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ProgramFailed) as error:
        working_folder(str(tmp_path)).__enter__()
    assert isinstance(error.value.__cause__, OSError) and error.value.__cause__.errno == 28
    assert str(tmp_path) in str(error.value) and str(error.value.__cause__.strerror) in str(error.value)
    assert list(tmp_path.iterdir()) == []
