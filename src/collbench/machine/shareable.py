"""What a process holds that others may hold too: what two worlds on one machine must not have in common.

Numbers of devices, inodes and namespaces are the kernel's own, so names agree across containers.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: A line of /proc/self/maps (proc(5)): permissions, device, inode, path. A segment of System V has its number as inode.
_MAP = re.compile(r"\S+ (\S{4}) \S+ (\S+) (\d+)\s*(.*)")
_SEGMENT = "/SYSV"

#: Access modes under which a file is written.
_WRITES = (os.O_WRONLY, os.O_RDWR)

#: Descriptors of standard input, output and error: what starts a process gives it those.
_STANDARD = frozenset((0, 1, 2))


def shareable(own: frozenset[int] = frozenset()) -> frozenset[str]:
    """Names of writable shared memory, of open files that can be written, of TCP connections, of the temporary folder.

    The descriptors in `own` are left out, and what the kernel does not tell.
    """
    return frozenset((*_mapped(), *_opened(own), *_connected(), *_folder()))


def _mapped() -> Iterator[str]:
    for line in _text("/proc/self/maps").splitlines():
        if (found := _MAP.match(line)) is None:
            continue
        permissions, device, inode, path = found.groups()
        if permissions[1] != "w" or permissions[3] != "s" or inode == "0":
            continue
        yield f"segment {inode} of {_namespace('ipc')}" if path.startswith(_SEGMENT) else f"memory {device} {inode}"


def _opened(own: frozenset[int]) -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - of strings
        with contextlib.suppress(OSError):
            if int(name) in own | _STANDARD:
                continue
            status = os.fstat(int(name))
            if stat.S_ISREG(status.st_mode) and _flags(name) & os.O_ACCMODE in _WRITES:
                yield f"file {status.st_dev} {status.st_ino}"
            elif stat.S_ISFIFO(status.st_mode):
                yield f"pipe {status.st_dev} {status.st_ino}"


def _flags(descriptor: str) -> int:
    """Those under which it was opened (proc_pid_fdinfo(5)); where the kernel does not tell, any."""
    found = re.search(r"^flags:\s*([0-7]+)", _text(f"/proc/self/fdinfo/{descriptor}"), re.MULTILINE)
    return os.O_RDWR if found is None else int(found[1], 8)


def _connected() -> Iterator[str]:
    """Both ends of a connection by the same name: its two addresses; a listening socket is one end to nowhere."""
    sockets = {link[8:-1] for link in _links() if link.startswith("socket:[")}
    for table in ("tcp", "tcp6"):
        for line in _text(f"/proc/self/net/{table}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9] in sockets:
                yield f"connection {' '.join(sorted(fields[1:3]))} in {_namespace('net')}"


def _folder() -> Iterator[str]:
    with contextlib.suppress(OSError):
        status = Path(tempfile.gettempdir()).stat()
        yield f"temporary folder {status.st_dev} {status.st_ino}"


def _links() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115
    except OSError:
        return kind


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
