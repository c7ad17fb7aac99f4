"""The `collbench` script, and `python -m collbench`."""

import contextlib
import os
import signal
import sys
from typing import NoReturn

#: Commands that take seconds before they ask an engine for the first time, and handle every signal from then on.
EXPERIMENTS = ("gate", "launch", "selftest")


def main() -> NoReturn:
    """While it is loaded, Ctrl-C ends the program without a word; from then on `collbench.cli` handles it.

    Experiments are ended with a line by any signal, until they handle signals themselves: there is nothing to remove.
    """
    if sys.argv[1:2] and sys.argv[1] in EXPERIMENTS:
        from collbench.machine.launcher import to_handle

        for number in to_handle():
            signal.signal(number, _interrupted)
        from collbench import cli

        cli.main()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    from collbench import cli

    signal.signal(signal.SIGINT, before)
    cli.main()


def _interrupted(number: int, frame: object) -> None:
    """No exception: within an import, one would make the interpreter end by the signal."""
    with contextlib.suppress(OSError):
        os.write(2, b"collbench: interrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
