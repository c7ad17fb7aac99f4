"""A program that tries whether one process of this user may read another's memory, as MPI ranks do.

The reader is a child of the process that is read, so that it has no rights of a parent: Yama treats it like another
rank. Prints a JSON object: the errno of process_vm_readv and of kcmp (0: allowed; null: no such call here), `plain`
and after the process that is read has `opted` in with PR_SET_PTRACER_ANY.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys

_PR_SET_PTRACER, _ANY, _KCMP_VM = 0x59616D61, ctypes.c_ulong(-1), 1
_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}

Errors = dict[str, int | None]


class _Span(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _errors(libc: ctypes.CDLL, pid: int, address: int, expected: bytes) -> Errors:
    """Runs in the reader."""
    copy = ctypes.create_string_buffer(len(expected))
    local = _Span(ctypes.addressof(copy), len(expected))
    remote = _Span(address, len(expected))
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    count = libc.process_vm_readv(ctypes.c_int(pid), ctypes.byref(local), one, ctypes.byref(remote), one, none)
    errors: Errors = {"readv": ctypes.get_errno() if count < 0 else 0}
    assert count < 0 or copy.raw == expected
    if (number := _KCMP.get(platform.machine())) is not None:
        words = [ctypes.c_long(word) for word in (number, os.getpid(), pid, _KCMP_VM, 0, 0)]
        errors["kcmp"] = ctypes.get_errno() if libc.syscall(*words) < 0 else 0
    return errors


def _attempt(libc: ctypes.CDLL) -> Errors:
    """Let a child read this process."""
    secret = os.urandom(32)
    target = ctypes.create_string_buffer(secret, len(secret))
    pid, address = os.getpid(), ctypes.addressof(target)
    answers, answer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(answer, json.dumps(_errors(libc, pid, address, secret)).encode())
        finally:
            os._exit(0)
    os.close(answer)
    with os.fdopen(answers, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(text))


def main() -> None:
    """Try, opt in, try again."""
    libc = ctypes.CDLL(None, use_errno=True)
    plain = _attempt(libc)
    libc.prctl(ctypes.c_int(_PR_SET_PTRACER), _ANY, *(ctypes.c_ulong(0),) * 3)
    sys.stdout.write(json.dumps({"plain": plain, "opted": _attempt(libc)}))


if __name__ == "__main__":
    main()
