"""A program as a child process, with limits on its time and its output, and the folder in which it works.

A process that is killed leaves its folder, which the next one removes: a folder is locked while its process lives.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.machine.launcher import THREADS, own_names
from collbench.units import format_duration
from collbench.workloads.protocol import SKIPPED

#: Interval (s) at which signals are checked: after SIGTERM the watchdog gives the main thread 0.1 s.
TICK = 0.05

#: Most bytes of standard output; bytes of standard error that are kept, its end; letters of its last line.
MOST_OUTPUT, KEPT_ERRORS, LONGEST_LINE = 16 << 20, 1 << 14, 300

#: Bytes that are read at once, and reads before signals are checked again: a pipe holds no more than that.
CHUNK, MOST_CHUNKS = 1 << 16, 16


class ProgramFailed(CollbenchError):
    """A program gave no result; the text says why."""


class ProgramSkipped(CollbenchError):
    """A program cannot be used here; the text says why."""


@dataclass(frozen=True)
class Finished:
    """What a program printed, and the processor time and the time that it took (s), its children's included.

    `error` is the last line of its standard error, or empty.
    """

    output: str
    user: float
    system: float
    wall: float
    error: str = ""


def execute(
    argv: Sequence[str], limit: float, go_on: Callable[[], None], folder: Path | None = None,
    variables: Mapping[str, str] | None = None, own_threads: bool = False,
) -> Finished:  # fmt: skip
    """Run a program to its end, within `limit` seconds, in a folder, with these variables besides its environment.

    `go_on` is called every now and then meanwhile; what it raises ends the program. Its process group is killed at the
    end in any case, and when this process dies. Its locale is C, for English messages and decimal points. A BLAS or an
    OpenMP program has as many threads as this process has cores; with `own_threads` as OMP_NUM_THREADS says, if set.

    Raises:
        ProgramFailed: it cannot be started, does not end with 0, takes too long, or prints too much.
        ProgramSkipped: it ended with exit code 77.
    """
    variables, name = variables or {}, _name_of(argv)
    of_ranks = own_names()
    inherited = {name: value for name, value in os.environ.items() if name not in of_ranks}
    if not own_threads or THREADS not in inherited:
        inherited[THREADS] = str(len(os.sched_getaffinity(0)))
    with _guarded_group() as group:
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=group,
                env={**inherited, **variables, "LC_ALL": "C"}, cwd=folder,
            )  # fmt: skip
        except OSError as error:
            hint = "; a text for a shell: sh -c TEXT" if " " in argv[0] else ""
            raise ProgramFailed(f"cannot start {argv[0]}: {error.strerror}{hint}") from error
        with _Pipes(process) as pipes:
            try:
                _wait(process, pipes, name, limit, began + limit, go_on)
            finally:
                for number in (group, process.pid):  # it may lead a group of its own; neither is reaped yet
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(number, signal.SIGKILL)
                _, status, usage = os.wait4(process.pid, 0)
                wall = time.monotonic() - began
                process.returncode = code = os.waitstatus_to_exitcode(status)
    if code == SKIPPED:
        raise ProgramSkipped(pipes.last_line or f"{name} cannot be used here")
    if code != 0:
        ended = f"exit code {code}" if code > 0 else f"signal {-code} ({signal.strsignal(-code)})"
        rank = f" of rank {variables['RANK']}" if code < 0 and "RANK" in variables else ""
        line = pipes.last_line
        if code == -signal.SIGKILL:  # nobody has said a last word before it
            line = "perhaps by the kernel, because memory ran out (dmesg would say so)"
        raise ProgramFailed(f"{name}{rank} ended with {': '.join(filter(None, (ended, line)))}")
    return Finished(pipes.output.decode("utf-8", "replace"), usage.ru_utime, usage.ru_stime, wall, pipes.last_line)


def _name_of(argv: Sequence[str]) -> str:
    """A program of ours has the name of its module: `train`."""
    return argv[2].rpartition(".")[2] if tuple(argv[:2]) == (sys.executable, "-m") else argv[0]


def _wait(
    process: subprocess.Popen[bytes], pipes: _Pipes, name: str, limit: float, deadline: float, go_on: Callable[[], None]
) -> None:
    """Read what a program prints until it has ended. It is not reaped: its number is still needed to kill its group."""
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        pipes.read(TICK)
        go_on()
        if time.monotonic() > deadline:
            late = f"did not end within {format_duration(limit)}"
            raise ProgramFailed(f"{name} {late} (the limit is -T, or timeout in a plan)")
    pipes.read(0.0)


@contextlib.contextmanager
def _guarded_group() -> Iterator[int]:
    """A process group that is killed when the context ends, or this process does.

    Its leader is a shell that waits for the end of a pipe, of which this process alone has the other end. The kernel's
    own way (PR_SET_PDEATHSIG) would need a call between fork and exec, for which Python copies its page tables: some
    2 ms, which would count as the program's.
    """
    with subprocess.Popen(
        ("sh", "-c", "read line; kill -KILL 0"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, process_group=0,
    ) as leader:  # fmt: skip
        try:
            yield leader.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own


@dataclass
class _Pipes:
    """The output of a program, as far as it is kept; a descriptor of its process tells when it ends."""

    process: subprocess.Popen[bytes]
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    _ready: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _end: int = -1

    def __enter__(self) -> _Pipes:
        with contextlib.suppress(OSError):  # a kernel before 5.3: the end is then seen with the next tick
            self._end = os.pidfd_open(self.process.pid)
            self._ready.register(self._end, selectors.EVENT_READ)
        for stream, kept in ((self.process.stdout, self.output), (self.process.stderr, self.errors)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._ready.register(stream, selectors.EVENT_READ, kept)
        return self

    def __exit__(self, *_: object) -> None:
        self._ready.close()
        if self._end >= 0:
            os.close(self._end)
        for stream in filter(None, (self.process.stdout, self.process.stderr)):
            stream.close()

    @property
    def last_line(self) -> str:
        """The last line of standard error, without source lines that a warning or a traceback quotes; may be empty."""
        lines = [line.rstrip() for line in self.errors.decode("utf-8", "replace").splitlines() if line.strip()]
        unindented = [line for line in lines if not line[0].isspace()] or lines
        return unindented[-1].strip()[:LONGEST_LINE] if unindented else ""

    def read(self, wait: float) -> None:
        """Read what the pipes hold, waiting at most `wait` seconds for it. ProgramFailed: it is too much."""
        for key, _ in self._ready.select(wait):
            if key.fd == self._end:
                continue
            kept = key.data
            with contextlib.suppress(BlockingIOError):
                for _ in range(MOST_CHUNKS):
                    chunk = os.read(key.fd, CHUNK)
                    if not chunk:
                        self._ready.unregister(key.fd)
                        break
                    kept += chunk
                    del self.errors[:-KEPT_ERRORS]
        if len(self.output) > MOST_OUTPUT:
            raise ProgramFailed(f"it printed more than {MOST_OUTPUT >> 20} MiB")


#: How names of such folders begin, and that of one which is not locked yet.
PREFIX, DRAFT = "collbench-files-", "collbench-new-"

#: The folders of this process, for a thread that ends it.
_HELD: set[Path] = set()

#: How often removal is tried again, while the program that works there may still make files.
_TRIES = 3


def prefix() -> str:
    """Names have this machine's in them: where several machines share a folder, one may not see another's locks."""
    return f"{PREFIX}{re.sub(r'[^A-Za-z0-9.-]', '_', os.uname().nodename)}-"


@contextlib.contextmanager
def working_folder(parent: str | None) -> Iterator[Path]:
    """An empty folder in `parent` (None: where temporary files are). It and what killed processes left is removed."""
    try:
        remove_abandoned(Path(parent or tempfile.gettempdir()))
        folder, lock = _made(parent)
    except OSError as error:
        where, name = (parent, "name") if parent else ("of temporary files", "set TMPDIR to")
        raise ProgramFailed(f"folder {where}: {error.strerror}; {name} one in which files can be made") from error
    _HELD.add(folder)
    try:
        yield folder
    finally:
        _remove(folder)
        _HELD.discard(folder)
        os.close(lock)


def remove_held() -> None:
    """Remove the folders of this process, which ends without leaving their contexts."""
    for folder in tuple(_HELD):
        for _ in range(_TRIES):
            _remove(folder)


def _remove(folder: Path) -> None:
    """With the folders in it that a program made read-only."""
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _made(parent: str | None) -> tuple[Path, int]:
    """A folder, and the open file whose lock says that this process lives.

    It gets its name when it is locked, so that nobody meets an unlocked folder of a living process.
    """
    import fcntl  # Unix has it

    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=parent))
    lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks, where nothing is removed either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return draft.rename(draft.with_name(prefix() + draft.name.removeprefix(DRAFT))), lock
    except BaseException:
        os.close(lock)
        draft.rmdir()
        raise


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders in `parent` whose process is gone."""
    import fcntl

    for folder in parent.glob(f"{prefix()}*"):
        with contextlib.suppress(OSError):  # of a living process, or of one that removed it meanwhile
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(opened).st_uid == os.getuid():
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(folder)
            finally:
                os.close(opened)
