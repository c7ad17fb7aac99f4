"""The SHA-256 of files, each read once by a process as long as it stays what it is."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


def sha256_of(path: str) -> str:
    """In hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    found = Path(path).stat()
    return _digest(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest(path: str, *version: int) -> str:
    import hashlib  # where nothing is hashed, the start is faster without it

    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
