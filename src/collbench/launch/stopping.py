"""Signals that end an experiment, heard at safe points: between two calls of the engine, never in the middle of one.

An exception out of the middle of a request would leave behind what the engine was just making.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

from collbench.errors import Interrupted

#: A safe point: raises Interrupted when somebody asked to stop.
Check = Callable[[], None]

#: What ends an experiment: Ctrl-C, a request, a terminal that is closed, Ctrl-\\.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

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
        """From now on signals are heard here; afterwards as before."""

        def hear(number: int, frame: object) -> None:
            self.asked = True

        heard = [one for one in SIGNALS if one not in _LEFT_ALONE or signal.getsignal(one) is not signal.SIG_IGN]
        before = {number: signal.signal(number, hear) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
