"""What benchmarks that work in files ask of a folder and of the kernel, and how their commands say why they fail."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

#: File systems by the number that statfs(2) gives.
_KINDS = {0x01021994: "tmpfs", 0x794C7630: "overlay", 0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs"}

#: The system call io_uring_setup: one number on all architectures that containers run on.
_IO_URING_SETUP = 425

#: Least part of the time asked for that a program measures: it looks at its clock after each request.
SHORTEST = 0.9

_EXPLAINED = 'said=$("$@" 2>&1) && echo "$said" && exit; echo "$said" | grep -m 1 -e "$0" >&2; exit 1'


def explained(pattern: str, *argv: str) -> tuple[str, ...]:
    """The command, with its standard error in its output; where it fails, the first line with the pattern says why."""
    return ("sh", "-c", _EXPLAINED, pattern, *argv)


def kind_of(path: Path) -> str:
    """The file system that a path is on, as `tmpfs`; by its number where it has no name here.

    Raises:
        OSError: no such path.
    """
    found = (ctypes.c_long * 64)()  # longer than struct statfs, which begins with the type
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statfs(os.fsencode(path), found):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    kind = found[0] & 0xFFFFFFFF
    return _KINDS.get(kind, f"file system {kind:#x}")


def no_direct(folder: Path) -> str | None:
    """Why files of a folder cannot be opened with O_DIRECT; None: they can."""
    path = folder / "direct"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600))
    except OSError as error:
        return f"direct I/O: {kind_of(folder)} refuses to open a file with O_DIRECT ({error.strerror})"
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return None


def no_io_uring() -> str | None:
    """Why the system call io_uring_setup cannot be used; None: it can."""
    parameters = (ctypes.c_char * 120)()
    libc = ctypes.CDLL(None, use_errno=True)
    queue = libc.syscall(_IO_URING_SETUP, 1, parameters)
    if queue >= 0:
        os.close(queue)
        return None
    refused = os.strerror(ctypes.get_errno())
    return (f"io_uring is refused here ({refused}): by the kernel, or by the seccomp profile of the container engine, "
            'which seccomp = "unconfined" leaves out')  # fmt: skip
