"""The communicators of one rank: few at a time, because each holds buffers on the GPU."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable

from collbench.bindings.gpu.nccl_library import Communicator

#: As many are kept. A library may take some hundred MB for each, and a plan may ask for dozens of settings.
MOST = 4


class Communicators:
    """By what they were made for, the most recently used last. None: this rank is no member."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Communicator | None] = {}
        self._asking = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Communicator | None]) -> Communicator | None:
        """That of a key, made if it does not exist. Collective: all ranks ask for the same keys in the same order."""
        if key not in self._made:
            if len(self._made) >= MOST:
                self._destroy(next(iter(self._made)))
            self._made[key] = make()
        self._made[key] = comm = self._made.pop(key)
        return comm

    def _destroy(self, key: Hashable) -> None:
        comm = self._made.pop(key)
        if comm is not None:
            gc.collect()  # graphs of earlier cases: the library waits until none uses the communicator
            with self._asking:
                comm.destroy()

    def drop(self, key: Hashable) -> None:
        """Abort that of a key, where it exists: a call with it has failed, and left it in an unknown state."""
        comm = self._made.pop(key, None)
        if comm is not None:
            with self._asking:
                comm.abort()

    def close(self) -> None:
        """Destroy all of them. Collective."""
        for key in list(self._made):
            self._destroy(key)

    def async_error(self) -> str | None:
        """An asynchronous error of any of them. From any thread, without waiting while one is being destroyed."""
        if not self._asking.acquire(blocking=False):
            return None
        try:
            errors = (comm.async_error() for comm in list(self._made.values()) if comm is not None)
            return next((error for error in errors if error), None)
        finally:
            self._asking.release()

    def abort(self) -> None:
        """All of them, the one in use first. From any thread."""
        for comm in reversed(list(self._made.values())):
            if comm is not None:
                comm.abort()
