"""The driver's end of its link to a world that takes turns: orders go to all ranks, reports come from rank 0.

The ranks' end is machine/driver_link.py.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collbench.errors import CollbenchError
from collbench.launch.folders import make_pipe
from collbench.schema.world import ADDRESS, LONGEST_REPORT, ORDERS, REPORTS, UNREACHABLE, Address, Order, Report

#: Longest wait for the ranks' connections before an order (s): those that rank 0 reports for have asked for theirs.
MEETING = 5.0

#: Longest first line of a connection (bytes), and most of them that have not said whose they are.
_GREETING, _STRANGERS = 100, 64


class WorldLink(ABC):
    """A link to the `ranks` of a world."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self._begun = ranks, b""

    def order(self, order: Order) -> None:
        """Let the ranks go on. One that is gone reads it no more, and its world is about to be seen dead."""
        self._send(msgspec.json.encode(order) + b"\n")

    def report(self, seconds: float) -> Report | None:
        """The next report within so many seconds.

        Raises:
            CollbenchError: it is none.
        """
        until = time.monotonic() + seconds
        while b"\n" not in self._begun:
            left = until - time.monotonic()
            received = self._received(max(left, 0.0))  # once at least, however late this process gets here
            if not received and left <= 0:
                return None
            self._begun += received
            if len(self._begun) > LONGEST_REPORT:
                raise CollbenchError(f"it reported more than {LONGEST_REPORT} bytes at once.")
        line, _, self._begun = self._begun.partition(b"\n")
        try:
            return msgspec.json.decode(line, type=Report)
        except msgspec.DecodeError as error:
            raise CollbenchError(f"it reported what is no report ({error}).") from error

    @property
    def unreachable(self) -> bool:
        """Whether a rank found no way to the driver."""
        return False

    @abstractmethod
    def _send(self, line: bytes) -> None:
        """To every rank."""

    @abstractmethod
    def _received(self, seconds: float) -> bytes:
        """What rank 0 sent, waiting at most so many seconds; empty: nothing."""

    @abstractmethod
    def close(self) -> None:
        """Give it back."""


class Pipes(WorldLink):
    """On this machine. The driver holds both ends of each pipe: no open waits, and no end is seen too early."""

    def __init__(self, folder: Path, ranks: int, user: tuple[int, int]) -> None:
        super().__init__(ranks)
        self._open = list[int]()
        try:
            for name in (REPORTS, *(ORDERS.format(rank=rank) for rank in range(ranks))):
                make_pipe(folder / name, user)
                self._open.append(os.open(folder / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            self.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._open[0], select.POLLIN)

    def _send(self, line: bytes) -> None:
        for pipe in self._open[1:]:
            with contextlib.suppress(BlockingIOError):
                os.write(pipe, line)

    def _received(self, seconds: float) -> bytes:
        return os.read(self._open[0], 1 << 16) if self._poll.poll(seconds * 1000) else b""

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())


class Connections(WorldLink):
    """To ranks on other machines: they connect to an address that they read in the world's folder.

    A program that a rank has started may have a connection of its own: the one that was made last is served.
    """

    def __init__(self, folder: Path, ranks: int) -> None:
        super().__init__(ranks)
        self._folder, self._token = folder, secrets.token_hex(16)
        self._strangers = dict[socket.socket, bytes]()
        self._met: list[list[socket.socket]] = [[] for _ in range(ranks)]
        self._listener = socket.create_server(("", 0), backlog=ranks + _STRANGERS)
        self._listener.setblocking(False)
        address = Address(hosts=_own_names(), port=self._listener.getsockname()[1], token=self._token)
        draft = folder / f"{ADDRESS}.part"
        draft.write_bytes(msgspec.json.encode(address))
        draft.rename(folder / ADDRESS)

    @property
    def unreachable(self) -> bool:
        return (self._folder / UNREACHABLE).exists()

    def _send(self, line: bytes) -> None:
        until = time.monotonic() + MEETING
        self._begun += self._received(0)  # connections that have ended are seen
        while not all(self._met) and time.monotonic() < until:
            self._begun += self._received(0.05)
        for connections in self._met:
            for connection in connections[-1:]:
                with contextlib.suppress(OSError):
                    connection.sendall(line)

    def _received(self, seconds: float) -> bytes:
        poll, received = select.poll(), b""
        of = {one.fileno(): one for one in (self._listener, *self._strangers, *(c for met in self._met for c in met))}
        for number in of:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(seconds * 1000):
            if of[number] is self._listener:
                self._accept()
            elif of[number] in self._strangers:
                self._greeted(of[number])
            else:
                received += self._heard(of[number])
        return received

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            stranger, _ = self._listener.accept()
            stranger.setblocking(False)
            stranger.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._strangers[stranger] = b""
        for stranger in list(self._strangers)[: -(_STRANGERS + self.ranks)]:
            self._drop(stranger)

    def _greeted(self, stranger: socket.socket) -> None:
        """Whose a connection is, by its first line, read byte by byte. Without the token it is closed."""
        said = self._strangers[stranger]
        try:
            while not said.endswith(b"\n") and len(said) < _GREETING:
                said += (got := stranger.recv(1))
                if not got:
                    break
        except BlockingIOError:
            self._strangers[stranger] = said
            return
        except OSError:
            said = b""
        token, _, rank = said.decode(errors="replace").rstrip("\n").partition(" ")
        if rank.isdecimal() and int(rank) < self.ranks and secrets.compare_digest(token.encode(), self._token.encode()):
            del self._strangers[stranger]
            self._met[int(rank)].append(stranger)
        else:
            self._drop(stranger)

    def _heard(self, connection: socket.socket) -> bytes:
        try:
            received = connection.recv(1 << 16)
        except BlockingIOError:
            return b""
        except OSError:
            received = b""
        if not received:
            self._drop(connection)
        return received if connection in self._met[0] else b""

    def _drop(self, connection: socket.socket) -> None:
        self._strangers.pop(connection, None)
        for met in self._met:
            if connection in met:
                met.remove(connection)
        connection.close()

    def close(self) -> None:
        for connection in (*self._strangers, *(one for met in self._met for one in met), self._listener):
            connection.close()


def _own_names() -> tuple[str, ...]:
    """The name of the machine, and its addresses under it that others can reach."""
    name, numbers = socket.gethostname(), dict[str, None]()
    with contextlib.suppress(OSError):
        numbers = dict.fromkeys(str(at[4][0]) for at in socket.getaddrinfo(name, None, socket.AF_INET))
    return (name, *(number for number in numbers if not number.startswith("127.")))


@contextlib.contextmanager
def linked(folder: Path, ranks: int, user: tuple[int, int], local: bool) -> Iterator[WorldLink]:
    """A link to a world whose ranks see this folder; `local`: they are on this machine.

    Raises:
        OSError: it cannot be made.
    """
    link = Pipes(folder, ranks, user) if local else Connections(folder, ranks)
    with contextlib.closing(link):
        yield link
