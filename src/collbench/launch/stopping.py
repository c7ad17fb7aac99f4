"""Signals that end an experiment, heard at safe points: between two calls of the engine, never in the middle of one.

An exception out of the middle of a request would leave behind what the engine was just making. Who asks a second time
waits for no safe point: what is being removed gets a moment, then every wait ends.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from collbench.errors import Interrupted

#: A safe point: raises Interrupted when somebody asked to stop.
StopCheck = Callable[[], None]

#: What ends an experiment: Ctrl-C, a request, a terminal that is closed, Ctrl-\\.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

#: After the second signal, how long (s) everything goes on as before, and then how often it is interrupted again: an
#: interrupted wait may be followed by another, for what is to be removed.
MOMENT, AGAIN = 1.0, 0.4

#: Of these, what somebody (nohup, a shell) told us to ignore stays ignored.
_LEFT_ALONE = (signal.SIGHUP, signal.SIGQUIT)


class Stopping:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def check(self) -> None:
        """A safe point.

        Raises:
            Interrupted: somebody asked to stop.
        """
        if self.asked:
            raise Interrupted("interrupted.")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """From now on signals are heard here; afterwards as before.

        Raises:
            Interrupted: somebody asked twice, and a moment has passed. Inside, that is a KeyboardInterrupt, which
                nothing that meets errors of the engine or of a launch takes for one of those.
        """

        def hear(number: int, frame: object) -> None:
            if self.asked and signal.SIGALRM not in before:
                before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _interrupt)
                signal.setitimer(signal.ITIMER_REAL, MOMENT, AGAIN)
            self.asked = True

        heard = [one for one in SIGNALS if one not in _LEFT_ALONE or signal.getsignal(one) is not signal.SIG_IGN]
        before: dict[signal.Signals, Any] = {number: signal.signal(number, hear) for number in heard}
        try:
            yield
        except KeyboardInterrupt as error:
            told = Interrupted("interrupted.")
            for note in getattr(error, "__notes__", ()):
                told.add_note(note)
            raise told from error
        finally:
            if signal.SIGALRM in before:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
