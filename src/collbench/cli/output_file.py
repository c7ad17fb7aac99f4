"""The file of `-o`: refused before anything is computed, and written as a whole."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from collbench.errors import RunWriteError


def refuse_folder(output: Path) -> None:
    """Before anything is computed, which may take a minute.

    Raises:
        RunWriteError: the file could not be written.
    """
    folder = output.parent
    if not folder.is_dir():
        raise RunWriteError(f"-o {output}: there is no folder {folder}.")
    if not os.access(folder, os.W_OK):
        raise RunWriteError(f"-o {output}: the folder {folder} cannot be written to.")


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
