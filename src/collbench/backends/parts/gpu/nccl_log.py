"""What NCCL says of itself in its own log: how bytes travel, and which algorithm and protocol an operation takes.

The log goes to files of ours. Connections are logged when they are made, outside every sample; the choice of algorithm
is logged for each call, so it is switched on for one operation that is not timed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from collbench.backends.parts.interface import Seen

_SETTINGS = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
#: Set beside them where they are ours and not the user's.
MARK = "COLLBENCH_NCCL_LOG"
#: Names behind the numbers that NCCL before 2.23 wrote (nccl.h and include/device.h of that time).
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_CHOICE = re.compile(r"Bytes -> Algo (\w+) proto (\w+)")
_VIA = re.compile(r"Channel \d+(?:/\d+)? : \S+ -> \S+(?: \[\w+\])? via (\S+)")


class NcclLog:
    """The log of this process. One that the user asked for (NCCL_DEBUG is set) is left alone, and tells us nothing."""

    def __init__(self) -> None:
        self._ours = "NCCL_DEBUG" not in os.environ or MARK in os.environ
        self._folder = Path(tempfile.mkdtemp(prefix="collbench-nccl-")) if self._ours else None
        self._files = 0
        self._current: Path | None = None
        self._ways: set[str] = set()
        self._warning: str | None = None

    def begin(self) -> None:
        """Log connections from now on. Before the library reads its environment."""
        self._write_to("INIT,P2P,SHM,NET")

    def _write_to(self, subsystems: str) -> Path | None:
        if self._folder is None:
            return None
        self._files += 1
        self._current = path = self._folder / f"{self._files}.log"
        os.environ |= dict(zip((*_SETTINGS, MARK), ("INFO", subsystems, str(path), "1"), strict=True))
        return path

    def _read(self) -> None:
        """Take in what was written; a file that the library has left is read once."""
        for path in [] if self._folder is None else sorted(self._folder.iterdir(), key=lambda one: int(one.stem)):
            text = path.read_text(encoding="utf-8", errors="replace")
            self._ways |= set(transports(text))
            warnings = re.findall(r"NCCL WARN (.*)", text)
            self._warning = warnings[-1].strip() if warnings else self._warning
            if path != self._current:
                path.unlink()

    def transport(self) -> str | None:
        """`P2P/IPC, SHM/direct`: every way that a connection of this rank took so far."""
        self._read()
        return ", ".join(sorted(self._ways)) or None

    def last_warning(self) -> str | None:
        """The last NCCL WARN line, which says more than an error code."""
        self._read()
        return self._warning

    def observe(self, reread: Callable[[], bool], once: Callable[[], object]) -> Seen:
        """Perform an operation, and say what the library chose for it. Every rank does the same.

        `reread` makes the library read its settings again; False where this version cannot.
        """
        left = self._current
        path = self._write_to("TUNING")
        if path is None or not reread():
            self._current = left
            once()
            return Seen(transport=self.transport())
        try:
            once()
        finally:
            self._write_to("INIT,P2P,SHM,NET")
            reread()
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return chosen(text, self.transport())

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def transports(text: str) -> list[str]:
    """What follows `via` in the lines about connections."""
    return [found.rstrip(",") for found in _VIA.findall(text)]


def chosen(text: str, transport: str | None = None) -> Seen:
    """Algorithm and protocol of the last operation in a log."""
    found = _CHOICE.findall(text)
    if not found:
        return Seen(transport=transport)
    algorithm, protocol = found[-1]
    return Seen(_named(algorithm, _ALGORITHMS), _named(protocol, _PROTOCOLS), transport)


def _named(word: str, names: tuple[str, ...]) -> str:
    return names[int(word)] if word.isdigit() and int(word) < len(names) else word
