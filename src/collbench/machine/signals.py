"""Signals that ask a program to end, wherever they are handled."""

from __future__ import annotations

import signal

#: A terminal that closes, and Ctrl-\\, where the system has them. They stay ignored where they were (by nohup, or a
#: shell).
_MAY_BE_IGNORED = tuple(one for one in signal.Signals if one.name in ("SIGHUP", "SIGQUIT"))

#: Ctrl-C, kill, and these.
SIGNALS = (signal.SIGINT, signal.SIGTERM, *_MAY_BE_IGNORED)


def to_handle() -> tuple[signal.Signals, ...]:
    """Those of `SIGNALS` that nobody asked to ignore; Ctrl-C and kill always."""
    return tuple(
        number for number in SIGNALS
        if number not in _MAY_BE_IGNORED or signal.getsignal(number) is not signal.SIG_IGN
    )  # fmt: skip
