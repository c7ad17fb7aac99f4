"""What NCCL writes to its log: how bytes travel, and which algorithm and protocol an operation takes.

The log goes to a file of ours. Connections are logged when they are made, outside every sample; the choice of algorithm
is logged for each call, so it is switched on for one operation that is not timed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from collbench.bindings.spec import Seen
from collbench.machine.own_variables import own_names, set_own

#: What is logged outside of `observe`, and in it.
_CONNECTIONS, _CHOICES = "INIT,P2P,SHM,NET", "TUNING"
_SETTINGS = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
#: By number, which NCCL before 2.23 wrote (nccl.h and include/device.h of that time).
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_CHOICE = re.compile(r"Bytes -> Algo (\w+) proto (\w+)")
_VIA = re.compile(r"Channel \d+(?:/\d+)? : \S+ -> \S+(?: \[\w+\])? via (\S+)")


class NcclLog:
    """The log of this process. One that the user asked for (NCCL_DEBUG is set) is not read.

    It goes to a memory file, of which nothing is left however this process ends. All variables are set once, and later
    only the value of one changes: the library's threads read the environment, which must not be reallocated.
    """

    def __init__(self) -> None:
        self._ours = "NCCL_DEBUG" not in os.environ or "NCCL_DEBUG" in own_names(os.environ)
        self._file = os.memfd_create("collbench-nccl") if self._ours else -1  # open as long as the library may write
        self._transports: set[str] = set()
        self._warning: str | None = None

    def begin(self) -> None:
        """Log connections from now on. Before the library reads its environment."""
        if self._ours:
            values = ("INFO", _CONNECTIONS, f"/proc/self/fd/{self._file}")
            set_own(dict(zip(_SETTINGS, values, strict=True)))

    def _read(self) -> str:
        """What was written since `_clear`; the library does not buffer it."""
        if not self._ours:
            return ""
        text = os.pread(self._file, os.fstat(self._file).st_size, 0).decode("utf-8", errors="replace")
        self._transports |= set(transports(text))
        warnings = re.findall(r"NCCL WARN (.*)", text)
        self._warning = warnings[-1].strip() if warnings else self._warning
        return text

    def _clear(self) -> None:
        self._read()
        os.ftruncate(self._file, 0)

    def transport(self) -> str | None:
        """`P2P/IPC, SHM/direct`: the transports of all connections of this rank so far."""
        self._read()
        return ", ".join(sorted(self._transports)) or None

    def last_warning(self) -> str | None:
        """The last NCCL WARN line, which says more than an error code."""
        self._read()
        return self._warning

    def forget_warnings(self) -> None:
        """Those so far are not about what comes next."""
        if self._ours:
            self._clear()
        self._warning = None

    def observe(self, reread: Callable[[], bool], once: Callable[[], object]) -> Seen:
        """Perform an operation, and say what the library chose for it. Every rank does the same.

        `reread` makes the library read its settings again; False where this version cannot.
        """
        text = ""
        if not self._ours:
            once()
            return Seen()
        self._clear()
        os.environ["NCCL_DEBUG_SUBSYS"] = _CHOICES
        try:
            switched = reread()
            once()
            text = self._read() if switched else ""
        finally:
            os.environ["NCCL_DEBUG_SUBSYS"] = _CONNECTIONS
            reread()
        return chosen(text, self.transport())


def transports(text: str) -> list[str]:
    """What follows `via` in the lines about connections."""
    return [transport.rstrip(",") for transport in _VIA.findall(text)]


def chosen(text: str, transport: str | None = None) -> Seen:
    """Algorithm and protocol of the last operation in a log."""
    choices = _CHOICE.findall(text)
    if not choices:
        return Seen(transport=transport)
    algorithm, protocol = choices[-1]
    return Seen(_named(algorithm, _ALGORITHMS), _named(protocol, _PROTOCOLS), transport)


def _named(word: str, names: tuple[str, ...]) -> str:
    return names[int(word)] if word.isdigit() and int(word) < len(names) else word
