"""C functions made of Python ones, for tests of the native loop."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from collbench.timing.loop import Words


class Library:
    """C functions made of Python functions. `order` is what was called; `answers` makes the k-th call fail."""

    def __init__(self) -> None:
        self.order: list[Any] = []
        self._keep: list[Any] = []

    def function(self, python: Callable[..., int], arguments: int = 0) -> int:
        """The address of a C function of that many words."""
        made = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * arguments)(python)
        self._keep.append(made)
        address = ctypes.cast(made, ctypes.c_void_p).value
        assert address is not None
        return address

    def named(self, name: str, fails_at: int | None = None, code: int = 17) -> Words:
        """A call without arguments that writes its name down, and returns `code` at its k-th time (from 0)."""

        def called() -> int:
            self.order.append(name)
            return code if self.order.count(name) - 1 == fails_at else 0

        return (self.function(called),)
