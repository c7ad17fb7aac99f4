"""A library, a device and an MPI that only write down what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from collbench.bindings.spec import to_word

COMM, STREAM, WORLD = 0xC033, 0x57EA, 0x3041D

#: A function's name and its arguments as words.
Call = tuple[str, tuple[int, ...]]


class Trace:
    """What the Python form calls, as the C calls that it stands for."""

    def __init__(self, direct: bool = False) -> None:
        self.calls: list[Call] = []
        self._direct = direct

    def note(self, function: str, *words: object) -> None:
        self.calls.append((function, tuple(map(to_word, words))))

    def communicator(self) -> Any:
        """CuPy's methods: as C's functions, without the communicator, which is what they are methods of."""

        def method(function: str) -> Callable[..., None]:
            return lambda *words: self.note(function, *words[:-1], COMM, words[-1])

        return Handle(
            COMM,
            all_reduce=method("ncclAllReduce"), reduce=method("ncclReduce"), broadcast=method("ncclBroadcast"),
            all_gather=method("ncclAllGather"), reduce_scatter=method("ncclReduceScatter"),
            send=method("ncclSend"), recv=method("ncclRecv"),
        )  # fmt: skip

    def library(self) -> Any:
        """NCCL, with functions of its own for gather and its like where the trace is `direct`."""

        def call(function: str, *words: Any) -> int:
            self.note(function, *(word.value or 0 for word in words))
            return 0

        start, end = (partial(self.note, f"ncclGroup{which}") for which in ("Start", "End"))
        has, version = (lambda function: self._direct), (2, 28, 0)
        return Handle(0, version=version, group_start=start, group_end=end, has=has, call=call)

    def mpi(self) -> Any:
        """mpi4py: a buffer with its datatype in place of address, count and datatype; a status only where one is."""

        def passing(function: str) -> Callable[..., None]:
            def call(spec: list[Any], other: int, tag: int) -> None:
                raw, datatype = spec
                assert raw.itemsize == 4
                self.note(function, raw, raw.size, datatype, other, tag, WORLD)

            return call

        world = Handle(WORLD, Send=passing("MPI_Send"), Recv=passing("MPI_Recv"))
        return Handle(0, COMM_WORLD=world, Status=lambda: Handle(0x57A7), UINT32_T=0xD4)


class Handle:
    """Something with an address, and whatever else."""

    def __init__(self, address: int, **attributes: Any) -> None:
        self.address = address
        vars(self).update(attributes)


class Device:
    """Memory that is only addresses, a stream that is only a number."""

    stream = STREAM
    capability = (9, 0)

    def __init__(self, trace: Trace) -> None:
        self.trace, self.used = trace, 0xD000_0000

    def allocate(self, size: int) -> Handle:
        self.used += size + 4096
        return Handle(self.used - size)

    def pinned(self, size: int) -> Any:
        return np.zeros(size, np.uint8)

    def copy(self, *what: int) -> None:
        self.trace.note("cudaMemcpyAsync", *what, STREAM)

    def synchronize(self) -> None:
        self.trace.note("cudaStreamSynchronize", STREAM)
