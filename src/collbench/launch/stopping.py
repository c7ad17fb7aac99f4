"""Signals that end an experiment take effect at safe points: between two requests to the engine, not within one.

An exception in the middle of a request would leave behind what the engine was just making. A second signal does not
wait for a safe point: removal gets a moment, then every wait ends.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from collbench.errors import Interrupted
from collbench.machine.signals import to_handle

#: Called at a safe point; raises Interrupted after a signal.
StopCheck = Callable[[], None]

#: After the second signal, how long (s) everything continues, and then the interval at which it is interrupted: an
#: interrupted wait may be followed by another, for what is to be removed.
MOMENT, AGAIN = 1.0, 0.4


class Stopping:
    """Whether a signal asked to stop."""

    def __init__(self) -> None:
        self.requested = False

    def check(self) -> None:
        """A safe point.

        Raises:
            Interrupted: a signal asked to stop.
        """
        if self.requested:
            raise Interrupted("interrupted.")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """A context in which signals are handled here.

        Raises:
            Interrupted: after a second signal and a moment. Inside, that is a KeyboardInterrupt, which is not caught
                as an error of the engine or of a launch.
        """

        def on_signal(number: int, frame: object) -> None:
            if self.requested and signal.SIGALRM not in before:
                before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _interrupt)
                signal.setitimer(signal.ITIMER_REAL, MOMENT, AGAIN)
            self.requested = True

        before: dict[signal.Signals, Any] = {number: signal.signal(number, on_signal) for number in to_handle()}
        try:
            yield
        except KeyboardInterrupt as error:
            interrupted = Interrupted("interrupted.")
            for note in getattr(error, "__notes__", ()):
                interrupted.add_note(note)
            raise interrupted from error
        finally:
            if signal.SIGALRM in before:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
