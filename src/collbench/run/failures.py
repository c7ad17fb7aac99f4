"""How errors end a job: raised on all ranks, or by one rank that aborts the others; with one message.

An error that all ranks know of is raised on all of them as `AgreedError`. A rank that alone meets an error aborts the
job, because the others wait for it. When one rank fails, others notice soon after, and each would print a message. The
ranks of a host share an unlinked temporary file; the first one to write to it prints. Hosts, and containers that share
no folder, each print their own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol

from collbench.bindings.spec import Session, World, first_value
from collbench.errors import CollbenchError, LibraryError, LostRankError, TimeOutError
from collbench.machine.launcher import SIGNALS, to_handle
from collbench.schema.record import Status
from collbench.timing.loop import native_loop
from collbench.units import format_duration


class Watch(Protocol):
    """A watchdog as seen by what it watches."""

    @property
    def stopped(self) -> int | None:
        """The number of the signal that told the process to stop."""

    def beat(self, doing: str) -> None:
        """The process makes progress; `doing` is what comes next."""

    def failed(self, reason: str | None, lost: bool = False) -> None:
        """A call has failed on this rank, and others may wait inside theirs; None: they have come out of it.

        `lost`: the reason is that another rank is gone.
        """


#: After a signal the main thread has so long to finish its batch and agree with the other ranks (s). Open MPI's mpirun
#: sends SIGTERM when it ends a job (Ctrl-C, a lost rank) and SIGKILL 0.4 s later; MPICH's forwards Ctrl-C as SIGINT.
_GRACE = {int(number): 0.1 if number == signal.SIGTERM else 0.8 for number in SIGNALS}

#: Ranks other than 0 wait this much longer (s), so that rank 0 reports first.
DEFERENCE = 2.0

#: A rank whose call has failed waits so long for the others to come out of theirs (s), but no longer than half of the
#: time-out, so that it reports before those who only wait.
PATIENCE = 15.0

#: Called with a kind and what the process was doing; ends the process.
OnEnd = Callable[[str, str], None]


class Watchdog:
    """Watches one process. Use as a context manager in the main thread; `beat` from anywhere.

    `on_end(kind, doing)` is called from the watchdog's thread with kind `timeout`, `interrupted` (SIGINT, SIGHUP,
    SIGQUIT), `terminated` (SIGTERM), `orphaned`, when `parent` is no longer the parent of this process, `async_error`,
    where `doing` includes the text of `async_error()`, or `failed`, where it includes why a call has failed on this
    rank alone. It must end the process.
    """

    def __init__(
        self, timeout: float, on_end: OnEnd, deference: float = 0.0,
        async_error: Callable[[], str | None] = lambda: None, parent: int | None = None,
    ) -> None:  # fmt: skip
        self._timeout, self._deference, self._parent = timeout, deference, parent
        self._on_end, self._async_error = on_end, async_error
        self._doing, self._beat = "starting", time.monotonic()
        self._failure: tuple[str, str, float] | None = None
        self._finished = threading.Event()
        self.stopped: int | None = None

    def beat(self, doing: str) -> None:
        self._doing = doing
        self._beat = time.monotonic()

    def failed(self, reason: str | None, lost: bool = False) -> None:
        limit = time.monotonic() + min(PATIENCE, self._timeout / 2)
        kind, doing = "async_error" if lost else "failed", self._doing
        self._failure = None if reason is None else (kind, f"{doing}: {reason.strip().rstrip('.')}", limit)

    def __enter__(self) -> Watchdog:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)
        self._previous_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._note) for number in to_handle()}
        self._beat = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        signal.set_wakeup_fd(self._previous_fd)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.write(self._write, b"\0")
        self._thread.join(timeout=1.0)
        os.close(self._write)
        os.close(self._read)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.stopped = number

    def _watch(self) -> None:
        deadline, kind = float("inf"), "interrupted"
        while not self._finished.is_set():
            ready, _, _ = select.select([self._read], [], [], 0.5 if deadline == float("inf") else 0.02)
            now = time.monotonic()
            for number in os.read(self._read, 64) if ready else b"":
                deadline = min(deadline, now + _GRACE.get(number, float("inf")))
                kind = "terminated" if number == signal.SIGTERM else "interrupted"
            if now > deadline:
                self._end(kind)
            elif (failure := self._failure) is not None and now > failure[2]:
                self._end(*failure[:2])
            elif self._parent is not None and os.getppid() != self._parent:
                self._end("orphaned")
            elif now > self._beat + self._timeout + self._deference:
                self._end("timeout")
            elif (text := self._async_error_text()) is not None:
                self._end("async_error", f"{self._doing}: {text}")

    def _async_error_text(self) -> str | None:
        """The library's own error; an error of asking does not end the watch."""
        with contextlib.suppress(Exception):
            return self._async_error()
        return None

    def _end(self, kind: str, doing: str | None = None) -> None:
        if not self._finished.is_set():
            self._on_end(kind, self._doing if doing is None else doing)


class Unwatched:
    """Stands in for a watchdog on ranks that another thread's watchdog covers."""

    stopped: int | None = None

    def beat(self, doing: str) -> None: ...

    def failed(self, reason: str | None, lost: bool = False) -> None: ...


class FirstReporter:
    """Lets one rank report an error. Collective to create."""

    def __init__(self, world: World) -> None:
        path: str | None = None
        if world.rank == 0:
            path = f"{os.environ.get('TMPDIR', '/tmp')}/collbench-{os.getpid()}-{time.monotonic_ns()}"  # noqa: S108
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except OSError:  # the temporary folder cannot be written
                path = None
        path = world.bcast(path)
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = None if path is None else os.open(path, os.O_RDWR)
        world.bcast(world.gather(None) and None)  # all have opened it; the messages are those of every version
        if path is not None and world.rank == 0:
            Path(path).unlink()

    def claim(self) -> bool:
        """True for the first rank that asks, False for all later ones."""
        if self._file is None:
            return True
        import fcntl  # Unix has it

        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            first = os.fstat(self._file).st_size == 0
            os.pwrite(self._file, b"claimed", 0)
            return first
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


#: A rank that only sees that another one is gone waits so long before it reports (s).
TURN = 0.5

#: How long a launcher has to read what ranks have printed before one aborts (s). MPICH's reads no more then: of jobs
#: that two ranks aborted at once, one in twenty lost its message.
PRINTED = 0.2

#: How long a library may take to give up a call (s); it may wait for the same lost rank itself.
LETTING_GO = 3.0


class Rescue(Protocol):
    """What holds results that are not printed yet."""

    def rescue(self) -> str:
        """Print the results before the process ends; returns what is safe on disk."""

    def saved(self) -> str:
        """Returns what is safe on disk, and prints nothing."""


class AgreedError(Exception):
    """Carries an error that every rank raises together."""

    def __init__(self, error: CollbenchError) -> None:
        super().__init__(str(error))
        self.error = error


def on_rank_0(session: Session, action: Callable[[], None]) -> None:
    """Do something on rank 0; if it raises a CollbenchError, all ranks do."""
    error: CollbenchError | None = None
    if session.world.rank == 0:
        try:
            action()
        except CollbenchError as raised:
            error = raised
    if (agreed := session.world.bcast(error)) is not None:
        raise AgreedError(agreed)


def raise_on_all(session: Session, error: CollbenchError | None) -> None:
    """Raise an error of any rank on all ranks."""
    if (first := first_value(session.world, error)) is not None:
        raise AgreedError(first)


def abort_job(session: Session, error: Exception, reporter: FirstReporter, sink: Rescue) -> NoReturn:
    """Report an error that this rank alone knows of, and end the job."""
    rank = session.world.rank
    code = error.exit_code if isinstance(error, CollbenchError) else 1
    if session.is_lost_rank(error):
        code = LostRankError.exit_code
        error = LostRankError(f"another rank is gone ({_gist(error)})")
        time.sleep(TURN)  # the rank that is gone may report why
    name = "" if isinstance(error, CollbenchError) else f"{type(error).__name__}: "
    if os.environ.get("COLLBENCH_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    saved = sink.rescue()
    if reporter.claim():
        say(f"rank {rank}: {name}{_gist(error)}. The job ends here.{saved}")
    time.sleep(PRINTED)
    session.abort(code)
    raise SystemExit(code)


def _gist(error: BaseException) -> str:
    """The first line of an error's text, and the last: MPI names the cause at the end of its error stack."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    return " ... ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else type(error).__name__


def say(text: str) -> None:
    """Print one line to standard error, if it is still open, complete even when the process is about to end."""
    with contextlib.suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"collbench: {text}\n".encode())


def on_watchdog(
    rank: int, reporter: FirstReporter, sink: Rescue, limit: float, abort_call: Callable[[], None] = lambda: None,
    clean_up: Callable[[], None] = lambda: None,
) -> OnEnd:  # fmt: skip
    """The function that a watchdog calls when its process must end.

    That is after `limit` seconds without progress, on a signal, when the launcher has ended, when the library has
    failed, or when a call has failed that other ranks are still in. `abort_call` makes the library give up the call it
    is in; `clean_up` removes what this process leaves nobody to remove.
    """
    #: By kind what is said before and after what the process was doing, and the exit code.
    ends = {
        "async_error": ("", ". Another rank may be gone; the job ends here.", LostRankError.exit_code),
        "failed": ("", ". The other ranks wait in this call; the job ends here.", LibraryError.exit_code),
        "orphaned": ("the launcher of the ranks ended in ", "; the job ends here.", LostRankError.exit_code),
        "timeout": (f"no progress for {format_duration(limit)} in ", ": a rank hangs, or one batch takes longer "
                    "(the limit is -T, or timeout in a plan).", TimeOutError.exit_code),
    }  # fmt: skip

    def end(kind: str, doing: str) -> None:
        if kind in ends:
            before, after, code = ends[kind]
            saved = sink.rescue()
            if reporter.claim():
                say(f"rank {rank}: {before}{doing}{after}{saved}")
            # The library has a moment to give up a call that waits for a lost rank.
            thread = threading.Thread(target=abort_call, daemon=True)
            thread.start()
            thread.join(LETTING_GO)
            clean_up()
            os._exit(code)
        by_signal = "ended by SIGTERM (a rank was lost, or the job was stopped)"
        reason = by_signal if kind == "terminated" else "interrupted"
        if rank == 0 and reporter.claim():  # first of all, because the launcher soon kills this process
            say(f"{reason} in {doing}.{sink.saved()}")
        sink.rescue()
        clean_up()
        os._exit(130)

    return end


class StartLimit:
    """A time limit until the world exists: a rank that never starts would keep the others in MPI_Init.

    MPI_Init holds the interpreter lock, so no Python thread could end it; where the native loop was not built, the
    interpreter's own fault handler does, with a traceback and exit code 1.
    """

    def __init__(self, limit: float, backend: str) -> None:
        self._limit, self._loop = limit, native_loop()
        failed = f"collbench: backend {backend}: the ranks did not meet within {format_duration(limit)}"
        self._text = f"{failed} (the limit is -T, or timeout in a plan): one never started, or left early.\n"

    def __enter__(self) -> StartLimit:
        if self._loop is not None:
            self._loop.set_limit(self._limit, self._text, TimeOutError.exit_code)
        else:
            faulthandler.dump_traceback_later(self._limit, exit=True, file=sys.__stderr__ or 2)
        return self

    def reached(self, *_: object) -> None:
        """Cancel the limit: the world exists, and a watchdog takes over."""
        if self._loop is not None:
            self._loop.lift_limit()
        else:
            faulthandler.cancel_dump_traceback_later()

    __exit__ = reached


@dataclass(frozen=True)
class Failure:
    """What went wrong on a rank; without `rank` it would on any.

    `inside`: in a call of the library in which other ranks may be waiting. `lost`: it only says that a rank is gone,
    which may have failed for a reason of its own.
    """

    status: Status
    text: str
    rank: int | None = None
    inside: bool = False
    lost: bool = False

    @property
    def reason(self) -> str:
        """For the record."""
        return self.text if self.rank is None else f"rank {self.rank}: {self.text}"

    @staticmethod
    def of(session: Session, error: Exception) -> Failure:
        """An error of the library on this rank."""
        lost = session.is_lost_rank(error)
        return Failure("failed", session.explained(error), session.world.rank, inside=True, lost=lost)


def cause(session: Session, failure: Failure | None, watch: Watch) -> Failure | None:
    """The failure of the first rank that has one of its own; None where there is none. Collective.

    While this rank waits for the others, `watch` ends the process if they do not come out of their calls. When they
    have, what the library used for the call is not used again.
    """
    if failure is not None and failure.inside:
        watch.failed(failure.text, failure.lost)
    world, nobody = session.world, session.world.size
    facts = (False,) * 3 if failure is None else (not failure.lost, True, failure.inside)
    lowest, _ = world.minmax([world.rank if holds else nobody for holds in facts])
    at_fault, failing, inside = map(int, lowest)
    watch.failed(None)
    if inside < nobody:
        session.reset()
    source = at_fault if at_fault < nobody else failing
    agreed: Failure | None = None if source == nobody else world.bcast_from(failure, source)
    return agreed
