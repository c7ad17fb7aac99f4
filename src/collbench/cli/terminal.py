"""The terminal: text for it that comes from elsewhere (an image, a world, a run), and what a reader waits for."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator

from collbench.characters import in_lines, in_one_line


def harmless(text: str) -> str:
    """The text with control characters, which the terminal would interpret, written out; newlines remain."""
    return in_lines(text)


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Where standard error is a terminal, it shows `what` until the block ends; elsewhere nothing is written."""
    if not sys.stderr.isatty():
        yield
        return
    line = f"collbench: {in_one_line(what)} ..."
    sys.stderr.write(line[: shutil.get_terminal_size().columns - 1])
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
