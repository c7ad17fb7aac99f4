"""The user's own data files: the folder that an environment variable names, and their hashes."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from collbench.schema.manifest import Library
from collbench.workloads.datasets.source import BadData

#: Names a folder with data files in their original formats, each perhaps compressed by gzip.
VARIABLE = "COLLBENCH_DATA"

#: In that folder, what sha256sum prints of its files; a file that it lists must have the hash that it says.
SUMS = "SHA256SUMS"


def found(name: str) -> Path | None:
    """The file of this name, or of the same with .gz."""
    folder = os.environ.get(VARIABLE, "")
    candidates = (Path(folder, name), Path(folder, f"{name}.gz")) if folder else ()
    return next((path for path in candidates if path.is_file()), None)


def lacking(names: Sequence[str]) -> str | None:
    """Why these files cannot be had; None: they can."""
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        return f"collbench does not contain {names[0]}: set {VARIABLE} to the folder that holds it"
    if not Path(folder).is_absolute():
        return f"{VARIABLE}={folder}: give the absolute path of the folder"
    absent = next((name for name in names if found(name) is None), None)
    return (
        None if absent is None else f"{folder}: there is no {absent} in it; {VARIABLE} names the folder of data files"
    )


def library(label: str, name: str) -> Library | None:
    """What a manifest says of a file; its hash is added to that."""
    path = found(name)
    return None if path is None else Library(name=label, version="", path=str(path))


def content(name: str) -> tuple[bytes, str]:
    """What is in a file, uncompressed, and the SHA-256 of that.

    Raises:
        BadData: there is no such file, it has another hash than `SHA256SUMS` says, or it is damaged.
    """
    path = found(name)
    if path is None:
        raise BadData(lacking((name,)) or name)
    data = path.read_bytes()
    listed = _listed(path)
    if listed is not None and (actual := hashlib.sha256(data).hexdigest()) != listed:
        raise BadData(f"{path}: its SHA-256 is {actual}, and {SUMS} beside it says {listed}")
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise BadData(f"{path}: not a whole file of gzip ({error})") from error
    return data, hashlib.sha256(data).hexdigest()


def _listed(path: Path) -> str | None:
    """The hash that stands beside a file; None where it is not listed."""
    sums = path.with_name(SUMS)
    if not sums.is_file():
        return None
    lines = (line.split() for line in sums.read_text(encoding="utf-8", errors="replace").splitlines())
    return next((words[0].lower() for words in lines if len(words) == 2 and words[1].lstrip("*") == path.name), None)
