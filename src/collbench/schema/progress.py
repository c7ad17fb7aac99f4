"""What a run that is being written does now: a line before each execution of a program, in a file beside its records.

The file is removed when the run is complete. Whoever waits for the run sees by it that a silent program makes progress.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

PROGRESS = "progress"


def note_progress(directory: Path, what: str) -> None:
    """Add a line. A disk that is full is noticed with the next record."""
    with contextlib.suppress(OSError), (directory / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


def end_progress(directory: Path) -> None:
    with contextlib.suppress(OSError):
        (directory / PROGRESS).unlink(missing_ok=True)
