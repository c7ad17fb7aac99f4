"""The link of a rank to `collbench launch`: orders come, reports go, and between them the rank sleeps."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from collbench.schema.world import ADDRESS, ORDERS, REPORTS, UNREACHABLE, Address, Order, Report

#: How often a sleeping process looks after something else (s), and the longest wait for a connection to the driver (s).
NAP, CONNECTING = 1.0, 5.0


class DriverLink:
    """The link of a rank to the driver, or OSError: it sleeps until an order comes; rank 0 reports.

    Links are pipes on the driver's machine, which it opens before a world exists, TCP connections elsewhere. Once it is
    gone, the orders end. Of the last sleep are `slept` (s) and `asleep`, processor seconds of all threads but the one
    that sleeps: it falls asleep and wakes up in its own turns.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        if (folder / ADDRESS).exists():
            self._orders = _connected(folder, rank)
            self._reports = self._orders if rank == 0 else -1
        else:
            self._orders = os.open(folder / ORDERS.format(rank=rank), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self._reports = os.open(folder / REPORTS, os.O_WRONLY | os.O_CLOEXEC) if rank == 0 else -1
        self.asleep, self.slept = 0.0, 0.0

    @property
    def descriptors(self) -> frozenset[int]:
        return frozenset((self._orders, self._reports))

    def report(self, report: Report) -> None:
        """Tell the driver; of other ranks than 0 nothing."""
        line = msgspec.json.encode(report) + b"\n" if self._reports >= 0 else b""
        while line:
            line = line[os.write(self._reports, line) :]

    def sleep(self, nap: Callable[[], None] = lambda: None) -> Order:
        """Until the next order comes (EOFError: the driver is gone); `nap` is called every now and then."""
        used, began = _used_by_others(), time.monotonic()
        poll, line = select.poll(), b""
        poll.register(self._orders, select.POLLIN)
        while not line.endswith(b"\n"):
            if poll.poll(NAP * 1000):
                with contextlib.suppress(BlockingIOError):
                    piece = os.read(self._orders, 1 << 12)
                    if not piece:
                        raise EOFError("the driver is gone")
                    line += piece
            nap()
        self.asleep, self.slept = max(_used_by_others() - used, 0) * 1e-9, time.monotonic() - began
        return msgspec.json.decode(line, type=Order)

    def close(self) -> None:
        """Give it back."""
        for descriptor in self.descriptors - {-1}:
            os.close(descriptor)


def _used_by_others() -> int:
    """Processor time of all threads but this one (ns)."""
    return time.process_time_ns() - time.thread_time_ns()


def _connected(folder: Path, rank: int) -> int:
    """A connection to the driver, which knows whose it is; where there can be none a file tells the driver."""
    import socket  # most worlds have pipes

    address = msgspec.json.decode((folder / ADDRESS).read_bytes(), type=Address)
    for host in address.hosts:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((host, address.port), CONNECTING)
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(f"{address.token} {rank}\n".encode())
            return connection.detach()
    (folder / UNREACHABLE).touch()
    raise ConnectionError(0, f"collbench launch does not answer at {', '.join(address.hosts)}, port {address.port}")
