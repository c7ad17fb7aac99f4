"""The files of `-o` and `-J`: refused before anything is computed, and written as a whole."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import IO

from collbench.errors import RequestError, RunWriteError


def refuse_folder(output: Path) -> None:
    """Before anything is computed, which may take a minute.

    Raises:
        RequestError: the file could not be written.
    """
    folder = output.parent
    if not folder.is_dir():
        raise RequestError(f"-o {output}: there is no folder {folder}.")
    if not os.access(folder, os.W_OK):
        raise RequestError(f"-o {output}: the folder {folder} cannot be written to. Name another.")
    if output.is_dir():
        raise RequestError(f"-o {output}: is a folder. Name a file.")


def amount(size: int) -> str:
    """`0.4 MB`, of less than a tenth of that `27 kB`."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{math.ceil(size / 1e3)} kB"


def opened(path: Path, mode: str) -> IO[str]:
    """A file to write to. Of a pipe that nobody reads the error comes at once, where open(2) would wait for a reader.

    Raises:
        OSError: it cannot be opened.
    """

    def at_once(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK, 0o666)
        os.set_blocking(descriptor, True)
        return descriptor

    return open(path, mode, encoding="utf-8", opener=at_once)  # pathlib takes no opener


def write(path: Path, text: str) -> None:
    """Completely or not at all: an existing file remains until the new one is complete."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8", errors="backslashreplace")
        half.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise RunWriteError(f"-o {path}: {error.strerror}.") from error
