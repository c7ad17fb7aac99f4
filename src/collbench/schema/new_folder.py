"""Whether a run can be created in a folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from collbench.errors import RequestError, RunWriteError


def refuse_used(directory: Path) -> None:
    """Whether it is free.

    Raises:
        RequestError: there is a run in it, or something else.
    """
    if (directory / "records.jsonl").exists() or (directory / "manifest.json").exists():
        raise RequestError(f"--out {directory}: already holds a run. Name a directory that does not exist yet.")
    if directory.is_dir() and any(directory.iterdir()):
        raise RequestError(f"--out {directory}: is not empty. Name a directory that does not exist yet.")


def refuse_unusable(directory: Path) -> None:
    """Whether a run can be created there, before anything is measured; nothing is left of the attempt.

    Raises:
        RequestError: there is a run in it, or something else.
        RunWriteError: nothing can be written there.
    """
    try:
        refuse_used(directory)
        parent = next(folder for folder in (directory, *directory.absolute().parents) if folder.exists())
        tempfile.TemporaryDirectory(prefix=".collbench-", dir=parent).cleanup()
    except OSError as error:
        raise RunWriteError(f"--out {directory}: {error.strerror or error}. Nothing was measured.") from error
