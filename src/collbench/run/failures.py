"""How ranks leave: all together with one error, or one rank that takes the others along.

An error that all ranks know of is raised on all of them as `AgreedError`. An error that one rank meets alone ends the
job from there, because the others wait for that rank. Either way one message appears.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn, Protocol

from collbench.bindings.spec import Session, allgather
from collbench.errors import CollbenchError, LostRankError, TimeOutError
from collbench.run.one_message import FirstReporter
from collbench.timing.loop import native_loop
from collbench.units import format_duration

#: A rank that only sees another one gone waits this long before it speaks (s).
TURN = 0.5

#: A library that is told to give up has this long to do so (s); it may wait for the same lost rank itself.
LETTING_GO = 3.0


class Rescue(Protocol):
    """What holds results back, or knows where they are."""

    def rescue(self) -> str:
        """Print what was held back, and say what is safe on disk: called when everything ends now."""

    def saved(self) -> str:
        """Say what is safe on disk, and print nothing."""


class AgreedError(Exception):
    """Carries an error that every rank raises together."""

    def __init__(self, error: CollbenchError) -> None:
        super().__init__(str(error))
        self.error = error


def on_rank_0(session: Session, action: Callable[[], None]) -> None:
    """Do something on rank 0; if it raises a CollbenchError, all ranks do."""
    failed: CollbenchError | None = None
    if session.world.rank == 0:
        try:
            action()
        except CollbenchError as error:
            failed = error
    known: CollbenchError | None = session.world.bcast(failed)
    if known is not None:
        raise AgreedError(known)


def raise_on_all(session: Session, error: CollbenchError | None) -> None:
    """Raise an error of any rank on all ranks."""
    first = next((found for found in allgather(session.world, error) if found is not None), None)
    if first is not None:
        raise AgreedError(first)


def abort_job(session: Session, error: Exception, voice: FirstReporter, sink: Rescue) -> NoReturn:
    """One message from the rank that knows, then the end of the job."""
    rank = session.world.rank
    code = error.exit_code if isinstance(error, CollbenchError) else 1
    if session.is_lost_rank(error):
        code = LostRankError.exit_code
        error = LostRankError(f"another rank is gone ({_gist(error)})")
        time.sleep(TURN)  # the one that is gone may know why
    name = "" if isinstance(error, CollbenchError) else f"{type(error).__name__}: "
    if os.environ.get("COLLBENCH_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    saved = sink.rescue()
    if voice.claim():
        say(f"rank {rank}: {name}{_gist(error)}. The job ends here.{saved}")
    session.abort(code)
    raise SystemExit(code)


def _gist(error: BaseException) -> str:
    """The first line of an error's text, and the last: MPI names the cause at the end of its error stack."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    return " ... ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else type(error).__name__


def say(text: str) -> None:
    """One line to standard error, whole even when the interpreter is about to be left."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"collbench: {text}\n".encode())


def on_watchdog(
    rank: int, voice: FirstReporter, sink: Rescue, limit: float, break_off: Callable[[], None] = lambda: None
) -> Callable[[str, str], None]:
    """What a watchdog calls when its process must end.

    That is after `limit` seconds without progress, on a signal, or when the library is in trouble. `break_off` makes
    the library let go of what it waits for.
    """

    def speak(kind: str, doing: str) -> None:
        if kind == "trouble":
            saved = sink.rescue()
            if voice.claim():
                say(f"rank {rank}: {doing}. Another rank may be gone; the job ends here.{saved}")
            _leave_behind(break_off)
        if kind == "timeout":
            saved = sink.rescue()
            if voice.claim():
                stuck = f"rank {rank}: no progress for {format_duration(limit)} in {doing}"
                say(f"{stuck}: a rank hangs, or one batch takes longer (-T sets the limit).{saved}")
            _leave_behind(break_off)
        why = "interrupted" if kind == "interrupted" else "ended by SIGTERM (a rank was lost, or the job was stopped)"
        if rank == 0 and voice.claim():  # before all else: the launcher kills whoever takes long
            say(f"{why} in {doing}.{sink.saved()}")
        sink.rescue()
        os._exit(130)

    return speak


def _leave_behind(break_off: Callable[[], None]) -> NoReturn:
    """Give the library a moment to let go of a call that waits for a lost rank, and leave, whatever it makes of it."""
    letting_go = threading.Thread(target=break_off, daemon=True)
    letting_go.start()
    letting_go.join(LETTING_GO)
    os._exit(TimeOutError.exit_code)


class StartLimit:
    """A limit for the time before there is a world: a rank that never comes would keep the others in MPI_Init.

    MPI_Init keeps the interpreter lock, so no Python thread could end it; where the native loop was not built, the
    interpreter's own fault handler does, with a traceback and exit code 1.
    """

    def __init__(self, limit: float, backend: str) -> None:
        self._limit, self._loop = limit, native_loop()
        who = f"collbench: backend {backend}: the ranks did not meet within {format_duration(limit)}"
        self._text = f"{who} (-T sets the limit): one never started, or left early.\n"

    def __enter__(self) -> StartLimit:
        if self._loop is not None:
            self._loop.set_limit(self._limit, self._text, TimeOutError.exit_code)
        else:
            faulthandler.dump_traceback_later(self._limit, exit=True, file=sys.__stderr__ or 2)
        return self

    def __exit__(self, *_: object) -> None:
        self.reached()

    def reached(self) -> None:
        """The world is there; from now on a watchdog watches."""
        if self._loop is not None:
            self._loop.lift_limit()
        else:
            faulthandler.cancel_dump_traceback_later()
