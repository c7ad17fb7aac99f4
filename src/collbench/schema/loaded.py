"""What ranks say of a library file that they loaded: a note of a record, which programs can read too."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

#: The variable by which a launcher asks: how names of files begin, `libmpi.so,libnccl.so`.
WATCHED = "COLLBENCH_LOADED"

#: In place of the SHA-256 of a file that a rank could not read, or that was removed since.
UNREAD = "0" * 64

_NOTE = re.compile(r"loaded (?P<name>\S+): (?:no file|(?P<path>.+) \(sha256 (?P<sha256>[0-9a-f]{64})\))(?: on rank.*)?")


def stem_of(path: str) -> str:
    """How the names of all versions of a library begin: `libmpi.so`."""
    return f"{PurePosixPath(path).name.partition('.so')[0]}.so"


class Loaded(NamedTuple):
    """A file whose name begins with `name`; path and hash are empty where a rank loaded none."""

    name: str
    path: str = ""
    sha256: str = ""


def said(one: Loaded, ranks: str = "") -> str:
    """`loaded libmpi.so: /opt/lib/libmpi.so.40 (sha256 0123...)`; of some `ranks` alone, with their numbers."""
    what = f"{one.path} (sha256 {one.sha256})" if one.path else "no file"
    return f"loaded {one.name}: {what}{f' on ranks {ranks}' if ranks else ''}"


def read(note: str) -> Loaded | None:
    """The file of a note; None where it is another note."""
    match = _NOTE.fullmatch(note)
    return None if match is None else Loaded(match["name"], match["path"] or "", match["sha256"] or "")
