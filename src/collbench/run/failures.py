"""How errors end a job: raised on all ranks, or by one rank that aborts the others; with one message.

An error that all ranks know of is raised on all of them as `AgreedError`. A rank that alone meets an error aborts the
job, because the others wait for it. Either way one message is printed.

When one rank fails, others notice soon after, and each would print a message. The ranks of a host share an unlinked
temporary file; the first one to write to it prints. Hosts, and containers that share no folder, each print their own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from collbench.bindings.spec import Session, World, first_value
from collbench.errors import CollbenchError, LibraryError, LostRankError, TimeOutError
from collbench.run.program import remove_held
from collbench.run.sampling import Watch
from collbench.run.watchdog import OnEnd
from collbench.schema.record import Status
from collbench.timing.loop import native_loop
from collbench.units import format_duration


class FirstReporter:
    """Lets one rank report an error. Collective to create."""

    def __init__(self, world: World) -> None:
        path = world.bcast(_new_file() if world.rank == 0 else None)
        self._file: int | None = None
        if path is not None:
            with contextlib.suppress(OSError):
                self._file = os.open(path, os.O_RDWR)
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


def _new_file() -> str | None:
    """The path of a new empty file; None where the temporary folder cannot be written."""
    path = f"{os.environ.get('TMPDIR', '/tmp')}/collbench-{os.getpid()}-{time.monotonic_ns()}"  # noqa: S108
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError:
        return None
    return path


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
    error = session.world.bcast(error)
    if error is not None:
        raise AgreedError(error)


def raise_on_all(session: Session, error: CollbenchError | None) -> None:
    """Raise an error of any rank on all ranks."""
    first = first_value(session.world, error)
    if first is not None:
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
    rank: int, reporter: FirstReporter, sink: Rescue, limit: float, break_off: Callable[[], None] = lambda: None
) -> OnEnd:
    """The function that a watchdog calls when its process must end.

    That is after `limit` seconds without progress, on a signal, when the launcher has ended, when the library has
    failed, or when a call has failed that other ranks are still in. `break_off` makes the library give up the call it
    is in.
    """

    def leave(text: str, code: int) -> NoReturn:
        saved = sink.rescue()
        if reporter.claim():
            say(f"rank {rank}: {text}{saved}")
        _exit_after(break_off, code)

    def end(kind: str, doing: str) -> None:
        if kind == "trouble":
            leave(f"{doing}. Another rank may be gone; the job ends here.", LostRankError.exit_code)
        if kind == "failed":
            leave(f"{doing}. The other ranks wait in this call; the job ends here.", LibraryError.exit_code)
        if kind == "orphaned":
            leave(f"the launcher of the ranks ended in {doing}; the job ends here.", LostRankError.exit_code)
        if kind == "timeout":
            stuck = f"no progress for {format_duration(limit)} in {doing}"
            leave(
                f"{stuck}: a rank hangs, or one batch takes longer (the limit is -T, or timeout in a plan).",
                TimeOutError.exit_code,
            )
        reason = "interrupted"
        if kind == "terminated":
            reason = "ended by SIGTERM (a rank was lost, or the job was stopped)"
        if rank == 0 and reporter.claim():  # first of all, because the launcher soon kills this process
            say(f"{reason} in {doing}.{sink.saved()}")
        sink.rescue()
        remove_held()
        os._exit(130)

    return end


def _exit_after(break_off: Callable[[], None], code: int) -> NoReturn:
    """Give the library a moment to give up a call that waits for a lost rank, then exit in any case."""
    thread = threading.Thread(target=break_off, daemon=True)
    thread.start()
    thread.join(LETTING_GO)
    remove_held()
    os._exit(code)


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

    def __exit__(self, *_: object) -> None:
        self.reached()

    def reached(self) -> None:
        """Cancel the limit: the world exists, and a watchdog takes over."""
        if self._loop is not None:
            self._loop.lift_limit()
        else:
            faulthandler.cancel_dump_traceback_later()


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
    own = failure is not None and not failure.lost
    inside = failure is not None and failure.inside
    lowest, _ = world.extremes([world.rank if holds else nobody for holds in (own, failure is not None, inside)])
    watch.failed(None)
    if lowest[2] < nobody:
        session.start_over()
    source = int(lowest[0] if lowest[0] < nobody else lowest[1])
    agreed: Failure | None = None if source == nobody else world.tell(failure, source)
    return agreed
