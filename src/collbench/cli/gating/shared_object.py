"""Whether a file can be loaded as a library here: its ELF header, and what else it needs (elf(5), ldd(1))."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from collbench.errors import RequestError
from collbench.launch.given import LIBRARY_PATH, names_of

#: Bytes of a file that tell what it is: e_ident, e_type and e_machine.
HEADER = 20

_MAGIC, _SHARED = b"\x7fELF", 3

#: Where the header has class and byte order, and where the processor.
_CLASS, _MACHINE = slice(4, 6), slice(18, 20)

#: Longer than it takes (s) to find the libraries of a file on a busy machine.
_LIMIT = 20.0

_NOT_FOUND = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)


def refuse_no_library(flag: str, path: str, header: bytes) -> None:
    """Refuse a file by its first `HEADER` bytes.

    Raises:
        RequestError: it is not ELF, no shared object, or one for another processor than that of this program.
    """
    with Path("/proc/self/exe").open("rb") as program:
        own = program.read(HEADER)
    if not header.startswith(_MAGIC) or len(header) < HEADER:
        what = "not an ELF file, so no shared library"
    elif header[_CLASS] != own[_CLASS] or header[_MACHINE] != own[_MACHINE]:
        what = "a library for another processor than that of this machine"
    elif int.from_bytes(header[16:18], "little" if header[5] == 1 else "big") != _SHARED:
        what = "an ELF file, but no shared library"
    else:
        return
    raise RequestError(f"{flag}: {path}: is {what}. Give a library by its path, such as /build/libnccl.so.2.")


def refuse_missing_needs(flag: str, paths: Collection[str], variables: Mapping[str, str]) -> None:
    """Refuse library files that need another one which is not found on this host, with these variables.

    Raises:
        RequestError: one does.
    """
    given = {name for path in paths for name in names_of(path)}
    for path in paths:
        if lacking := [name for name in _not_found(path, variables) if name not in given]:
            raise RequestError(
                f"{flag}: {path}: needs {', '.join(lacking)}, which is not found on this host, so no rank could load "
                f"it. Give both sides the folder that has it: env={LIBRARY_PATH}=FOLDER."
            )


def _not_found(path: str, variables: Mapping[str, str]) -> list[str]:
    """Libraries that the dynamic linker misses; none where it cannot be asked."""
    try:
        done = subprocess.run(
            ("ldd", path), capture_output=True, text=True, errors="replace", timeout=_LIMIT, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, **variables, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return list(dict.fromkeys(_NOT_FOUND.findall(done.stdout)))
