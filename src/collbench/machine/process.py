"""What a process of collbench handles and sets: signals that ask it to end, and variables of its environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

#: A terminal that closes, and Ctrl-\\, where the system has them. They stay ignored where they were (by nohup, or a
#: shell).
_MAY_BE_IGNORED = tuple(Signal for Signal in signal.Signals if Signal.name in ("SIGHUP", "SIGQUIT"))

#: Ctrl-C, kill, and these.
SIGNALS = (signal.SIGINT, signal.SIGTERM, *_MAY_BE_IGNORED)

#: Names of the variables that a backend set, as opposed to the user, separated by commas.
OWN = "COLLBENCH_OWN_VARIABLES"


def to_handle() -> tuple[signal.Signals, ...]:
    """Those of `SIGNALS` that nobody asked to ignore; Ctrl-C and kill always."""
    return tuple(
        number for number in SIGNALS
        if number not in _MAY_BE_IGNORED or signal.getsignal(number) is not signal.SIG_IGN
    )  # fmt: skip


def own_names(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    return frozenset(filter(None, environ.get(OWN, "").split(",")))


def set_own(variables: Mapping[str, str]) -> None:
    """Set variables, and record that it was not the user."""
    if variables:
        os.environ.update({**variables, OWN: ",".join(sorted(own_names(os.environ) | variables.keys()))})
