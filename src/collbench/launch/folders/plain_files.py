"""Files in folders that a world may write to, opened as untrusted: only plain files of bounded size."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

from collbench.errors import RunReadError


def open_folder(name: str | Path, parent: int | None = None) -> int:
    """Open a folder, in the open folder `parent` where that is given. The caller closes it.

    Raises:
        RunReadError: it is a link, not a folder, or cannot be entered.
    """
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except (OSError, ValueError) as error:
        raise RunReadError(f"{_shown(name)}/: {_why(error)}.") from error


def open_plain(folder: int, name: str, largest: int | None = None) -> BinaryIO:
    """Open a plain file in an open folder, to be read; `largest` in bytes.

    Raises:
        RunReadError: it is missing, not a plain file, larger, or cannot be read.
    """
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError as error:
        raise RunReadError(f"{_shown(name)}: is missing.") from error
    except (OSError, ValueError) as error:  # a name may hold characters that no name can
        raise RunReadError(f"{_shown(name)}: {_why(error)}; a world may only leave plain files.") from error
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise RunReadError(f"{_shown(name)}: not a plain file.")
        if largest is not None and status.st_size > largest:
            raise RunReadError(f"{_shown(name)}: {status.st_size} bytes; at most {largest} are read.")
    except BaseException:
        os.close(file)
        raise
    return io.BufferedReader(io.FileIO(file, "rb"))


def _shown(name: str | Path) -> str:
    """A name from a world, in characters that every record and terminal can hold."""
    return ascii(str(name))[1:-1]


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
