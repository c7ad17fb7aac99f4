"""Python's garbage collector, which finds what refers to itself in circles: nothing that is read or printed does."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause it: of a hundred thousand cells it would take a sixth of the time that it takes to read them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
