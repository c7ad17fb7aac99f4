"""The `collbench` script, and `python -m collbench`."""

import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    """Ctrl-C ends the program without a word while it is loaded; from then on `collbench.cli` handles it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    from collbench import cli

    signal.signal(signal.SIGINT, before)
    cli.main()


if __name__ == "__main__":
    main()
