"""C functions made of Python ones, error codes, and the end of a process that does what a GPU would not forgive."""

from __future__ import annotations

import ctypes
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from collbench.bindings.spec import to_word
from collbench.collectives.row import C
from collbench.timing.loop import Native


class Code(RuntimeError):
    """An error code of the library."""

    def __init__(self, number: int) -> None:
        super().__init__(f"double: error {number}")
        self.number = number


def crash(what: str) -> NoReturn:
    """End as freed memory would end it, but say why."""
    os.write(2, f"double: {what}\n".encode())
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(139)


class Functions:
    """C functions made of Python ones: each returns 0, or the code that it raises as `Code`."""

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace
        self._made: dict[str, tuple[Any, int]] = {}

    def add(self, name: str, python: Callable[..., object], words: int) -> None:
        """`python` gets the words as unsigned integers."""

        def called(*given: int) -> int:
            self.trace.append(name)
            try:
                python(*given)
            except Code as code:
                return code.number
            except BaseException:  # no exception passes through C
                crash(f"{name}: {traceback.format_exc()}")
            return 0

        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * words)(called)
        self._made[name] = (function, words)

    def native(self, call: C) -> Native | None:
        if call.function not in self._made:
            return None
        function, words = self._made[call.function]
        assert len(call.arguments) == words, f"{call.function} takes {words} arguments"
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return Native((address, *map(to_word, call.arguments)), lambda code: f"double: {code}")
