"""Folders that a world could write to are removed: however deep they are, and whatever their modes."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)  # not every system has them

#: Most descriptors that are open at a time while a folder is removed.
DESCRIPTORS = 4


def remove_folder(root: Path) -> bool:
    """Remove a folder with everything in it; links are removed, not followed. Returns whether it is gone.

    Folders inside are moved up before they are emptied, so that neither the depth of calls nor the length of a path
    grows with them. The folder's own files are removed last, among them the one that names its driver.
    """
    with contextlib.suppress(OSError):
        top = os.open(root, os.O_RDONLY | _FOLDER)
        try:
            waiting = _folders_in(top)
            while waiting:
                waiting += _remove_one(top, waiting.pop())
            if not _folders_in(top):
                _unlink_all(top)
        finally:
            os.close(top)
        root.rmdir()
    return not os.path.lexists(root)


def _remove_one(top: int, name: str) -> list[str]:
    """Remove a folder in `top`. Folders that were in it are moved to `top`, under the names that are returned."""
    moved: list[str] = []
    with contextlib.suppress(OSError):
        folder = _entered(top, name)
        try:
            for child in _folders_in(folder):
                os.close(_entered(folder, child))  # to move a folder its owner must be able to write to it
                fresh = secrets.token_hex(8)
                os.rename(child, fresh, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(fresh)
            _unlink_all(folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)
    return moved


def _entered(parent: int, name: str) -> int:
    """Open a folder in an open folder; it is made writable for its owner first."""
    path_only = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        with contextlib.suppress(OSError):
            os.chmod(f"/proc/self/fd/{path_only}", 0o700)  # noqa: PTH101 - an open folder
        return os.open(".", os.O_RDONLY | _FOLDER, dir_fd=path_only)
    finally:
        os.close(path_only)


def _folders_in(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _unlink_all(folder: int) -> None:
    """Remove everything in an open folder that is not a folder."""
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
