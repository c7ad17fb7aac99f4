"""The user's own data files: the folder that an environment variable names, and their hashes."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from collbench.machine import facts
from collbench.schema.manifest import Library
from collbench.workloads.datasets.source import BadData

#: Names a folder with data files in their original formats, each perhaps compressed by gzip.
VARIABLE = "COLLBENCH_DATA"

#: In that folder, what sha256sum prints of its files; a file that it lists must have the hash that it says.
SUMS = "SHA256SUMS"


#: A line of it: the hash, and the name behind a blank and a sign of how the file was read.
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def found(name: str) -> Path | None:
    """The file of this name, or of the same with .gz."""
    return next((path for path in _candidates(name) if _reason(path) is None), None)


def shown(name: str) -> str:
    """Where the file is, for messages."""
    return str(found(name) or name)


def lacking(names: Sequence[str]) -> str | None:
    """Why these files cannot be had; None: they can."""
    folder = os.environ.get(VARIABLE, "")
    if not folder and facts.container() is not None:
        own = f"build one from it that does, and that sets {VARIABLE} to their folder"
        return f"this image does not hold {names[0]}; {own}"
    if not folder:
        return f"collbench does not contain {names[0]}: set {VARIABLE} to the folder that holds it"
    if not Path(folder).is_absolute():
        return f"{VARIABLE}={folder}: give the absolute path of the folder"
    for name in names:
        if found(name) is None:
            why = next(filter(None, map(_reason, _candidates(name))), f"there is no {name} in it")
            return f"{folder}: {why}; {VARIABLE} names the folder of data files"
    return None


def _candidates(name: str) -> tuple[Path, ...]:
    folder = os.environ.get(VARIABLE, "")
    return (Path(folder, name), Path(folder, f"{name}.gz")) if folder else ()


def _reason(path: Path) -> str | None:
    """Why a file cannot be read, empty where there is none; None: it can."""
    try:
        if not path.is_file():
            return ""
    except OSError as error:  # a folder that this user may not enter
        return f"{path.name}: {error.strerror}"
    return None if os.access(path, os.R_OK) else f"{path.name} cannot be read by this user"


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
    """The hash that stands beside a file; None where it is not listed.

    Raises:
        BadData: a line is not what sha256sum prints.
    """
    sums = path.with_name(SUMS)
    if not sums.is_file():
        return None
    listed: dict[str, str] = {}
    for number, line in enumerate(sums.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line.rstrip())
        if match is not None:
            listed[match[2]] = match[1].lower()
        elif line.strip():
            raise BadData(f"{sums}: line {number} is not what sha256sum prints: {line.strip()[:80]!r}")
    return listed.get(path.name)
