"""A world while it lives: folders and boxes are made, its ranks run, their records are read, everything is removed.

Whatever goes wrong in it, or lies in its folders, is a failure of this launch alone. A world that takes turns has a
link to the driver: orders go to all ranks, reports come from rank 0. The ranks' end is schema/world.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import select
import socket
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from collbench.errors import CollbenchError, Interrupted, LaunchFailed
from collbench.launch import engines
from collbench.launch.cells import Launch, inner_plan
from collbench.launch.collect import CollectedRecord, left_behind
from collbench.launch.engines.spec import LaunchSession, Stack
from collbench.launch.expansion import nccl_shortage, places, shm_shortage, user_of, world_of
from collbench.launch.folders import Folders, Storage, folders, make_for, storage_of
from collbench.launch.job import Job
from collbench.launch.launchers import RankLauncher, started_by_engine
from collbench.launch.placement import Placement
from collbench.launch.waiting import Log, Timeouts, limits_of, written_to
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from collbench.schema.record import Alone, Duet
from collbench.schema.world import ADDRESS, LONGEST_REPORT, ORDERS, REPORTS, UNREACHABLE, Address, Order, Report
from collbench.units import format_spans

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
        """The next report within so many seconds, or CollbenchError: it is none."""
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
    def _send(self, line: bytes) -> None: ...

    @abstractmethod
    def _received(self, seconds: float) -> bytes:
        """What rank 0 sent, waiting at most so many seconds; empty: nothing."""

    @abstractmethod
    def close(self) -> None: ...


class Pipes(WorldLink):
    """On this machine. The driver holds both ends of each pipe: no open waits, and no end is seen too early."""

    def __init__(self, folder: Path, ranks: int, user: tuple[int, int]) -> None:
        super().__init__(ranks)
        self._open, self._poll = list[int](), select.poll()
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for name in (REPORTS, *(ORDERS.format(rank=rank) for rank in range(ranks))):
                make_for(user, folder / name, pipe=True)
                self._open.append(os.open(folder / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            undo.pop_all()
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
        name = socket.gethostname()
        hosts = {name: None}  # and its addresses under it that others can reach
        with contextlib.suppress(OSError):
            hosts |= dict.fromkeys(str(at[4][0]) for at in socket.getaddrinfo(name, None, socket.AF_INET))
        reached = tuple(host for host in hosts if host == name or not host.startswith("127."))
        address = Address(hosts=reached, port=self._listener.getsockname()[1], token=self._token)
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
        by_number = {connection.fileno(): connection for connection in self._all}
        for number in by_number:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(seconds * 1000):
            connection = by_number[number]
            if connection is self._listener:
                self._accept()
            elif connection in self._strangers:
                self._greeted(connection)
            else:
                received += self._heard(connection)
        return received

    @property
    def _all(self) -> tuple[socket.socket, ...]:
        return (self._listener, *self._strangers, *itertools.chain.from_iterable(self._met))

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
        line = self._strangers[stranger]
        try:
            while not line.endswith(b"\n") and len(line) < _GREETING and (byte := stranger.recv(1)):
                line += byte
        except BlockingIOError:
            self._strangers[stranger] = line
            return
        except OSError:
            line = b""
        token, _, rank = line.decode(errors="replace").rstrip("\n").partition(" ")
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
        self._met = [[other for other in met if other is not connection] for met in self._met]
        connection.close()

    def close(self) -> None:
        for connection in self._all:
            connection.close()


def linked(folder: Path, ranks: int, user: tuple[int, int], local: bool) -> contextlib.closing[WorldLink]:
    """A link to a world whose ranks see this folder; `local`: they are on this machine. Raises OSError."""
    return contextlib.closing(Pipes(folder, ranks, user) if local else Connections(folder, ranks))


@dataclass(frozen=True)
class LaunchTask:
    """One launch with all that it needs. `expected` are the cases that it measures.

    `keep` gets each record as it is read, with the transport; with the last one, why the launch failed, if it did.
    `alone` is why no other world lives beside it; None: others do.
    """

    plan: Plan
    launch: Launch
    stack: Stack
    placement: Placement
    session: LaunchSession
    expected: frozenset[Case]
    keep: Callable[[CollectedRecord, str | None, LaunchFailed | None], None]
    alone: Alone | None = None


def without_measure(case: Case) -> Case:
    """The same for all measures of an execution."""
    return case.without(("measure",))


@dataclass(eq=False)
class LiveWorld:
    """A world of one launch, beside `others` or none, which measure so many `cases` in all. `failure`: it has failed.

    `transport` is the one that its library printed, known at the `end`. `duets` are the turns of its cases that all
    worlds beside it completed, `broken` (`without_measure`) those that it ended without; other cases of a world in
    turns have no record. `reports` of any world beside it are progress. Until `close` it may hold boxes and folders.
    """

    assignment: LaunchTask
    others: int = 0
    cases: int = 0
    failure: LaunchFailed | None = None
    transport: str | None = None
    over: bool = False
    stands: Case | None = None
    duets: dict[Case, Duet] = field(default_factory=dict)
    broken: set[Case] = field(default_factory=set)
    holds: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    _quotes: bool = False  # its own words explain how it failed
    reports: int = 0
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _boxes: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _log: Log = field(default_factory=Log)
    _at: Folders | None = None
    _job: Job | None = None
    _link: WorldLink | None = None

    @property
    def launch(self) -> Launch:
        return self.assignment.launch

    @cached_property
    def _launcher(self) -> RankLauncher:
        launcher = self.assignment.stack.launcher
        return started_by_engine(launcher) if engines.get(self.launch.cell.engine).starts_ranks else launcher

    def start(self) -> None:
        """Make its folders and boxes, and start its ranks."""
        with self._failing():
            try:
                at, storage = self._make_folders()
            except OSError as error:
                raise LaunchFailed(f"temporary folder: {error}") from error
            self._at, of, cell = at, self.assignment, self.launch.cell
            world = world_of(self.launch, of.stack, of.placement, of.session.run, at, storage)
            opened = self._boxes.enter_context(of.session.open(world))
            timeouts = Timeouts(limits_of(of.plan, max(self.cases, len(of.expected)), self.others))
            self._job = Job(opened, self._launcher, cell.ranks, of.placement.crowded, at.relay, self._log, timeouts,
                            lambda: written_to(at.out) + self.reports)  # fmt: skip

    def _make_folders(self) -> tuple[Folders, Storage | None]:
        of, launch = self.assignment, self.launch
        user = user_of(launch.cell)
        storage = self._held.enter_context(storage_of(launch.cell, of.plan.storage_folder, user))
        inner = inner_plan(of.plan, launch.cell, storage.folder if storage else "")
        if launch.only is not None:
            inner = inner.of_world(launch.only.measured, launch.only.brief)
        of_ranks, cores = places(launch.cell, of.placement), format_spans(of.placement.cores)
        at = self._held.enter_context(folders(inner, user, cores, of.session.folder, of_ranks, self.others > 0))
        if at.turns is not None:
            local = engines.get(launch.cell.engine).local
            self._link = self._held.enter_context(linked(at.turns, launch.cell.ranks, user, local))
        return at, storage

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """What is raised inside ends the world; only being told to stop is raised further."""
        try:
            yield
        except Interrupted:
            raise
        except Exception as error:  # of this launch alone: the next one may go well
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """It is over, and its boxes are removed: ranks that are left in them would compute beside others."""
        if self.failure is None:
            self.over, self.failure = True, self._failure_of(error)
            self._remove(error)

    def _failure_of(self, error: Exception) -> LaunchFailed:
        """Words of the library explain how its ranks ended, and not what else went wrong."""
        if isinstance(error, LaunchFailed):
            self._quotes = True
            return error
        is_ours = isinstance(error, CollbenchError)
        if not is_ours and os.environ.get("COLLBENCH_TRACEBACK"):
            traceback.print_exception(error)
        return self._failed(str(error) if is_ours else f"{type(error).__name__}: {error}")

    def _failed(self, reason: str) -> LaunchFailed:
        return LaunchFailed(reason, self._log.tail(self._launcher.quiet))

    def _remove(self, error: BaseException | None = None) -> None:
        """Remove its boxes, which may say more of the error."""
        try:
            with self._boxes:
                if error is not None:
                    raise error
        except (Interrupted, KeyboardInterrupt):
            if error is None:
                raise
        except Exception as last:
            if last is not error:
                self.over, self.failure = True, self._failure_of(last)

    @property
    def pause(self) -> float:
        return 0.0 if self._job is None else self._job.pause

    def look(self) -> bool:
        """One pass of the wait for its end; whether it still runs."""
        with self._failing():
            if self._job is not None and not self.over and not self._job.look():
                self.over = True
                self._remove()
        return not self.over

    def order(self, order: Order) -> None:
        if self._link is not None and not self.over:
            self._link.order(order)

    def report(self, seconds: float) -> Report | None:
        """What it reports next, within so many seconds; None: nothing."""
        report = None
        with self._failing():
            if self._link is not None and not self.over:
                report = self._link.report(seconds)
        return report

    @property
    def unreachable(self) -> bool:
        return self._link is not None and self._link.unreachable

    def give_up(self, reason: str) -> None:
        self._fail(self._failed(reason))

    def end(self, keep: bool = True, interrupted: Interrupted | None = None) -> None:
        """Remove its boxes, and `keep` its records, which may raise anything. `close` removes its folders."""
        self._remove(interrupted)
        if self._at is None:
            return
        of, cell = self.assignment, self.launch.cell
        if self.failure is not None and self._quotes:
            quiet, starts = self._launcher.quiet, engines.get(cell.engine).starts_ranks
            quoted = self._log.message or ("" if starts else self._log.library_message(quiet))
            self.failure = self.failure.saying(f"{self.failure}{quoted}")
        boxes = tuple(len(box.ranks) for box in of.placement.boxes)
        self.transport = of.stack.launcher.transport(self._log.lines, boxes)
        if keep:
            self._read(self._at.out)

    def close(self, *how: Any) -> None:
        """Remove what is left of it, as `contextlib.ExitStack.push` calls it: boxes, its link, folders."""
        try:
            self._boxes.__exit__(*how)
        finally:
            self._held.__exit__(*how)

    def _read(self, out: Path) -> None:
        """Keep its records, the last one with how it ended, which is known when all are read."""
        expected, keep = self.assignment.expected, self.assignment.keep
        count, last, reason = 0, None, ""
        for collected in left_behind(out, expected):
            if isinstance(collected, LaunchFailed):
                reason = str(collected)
            elif (with_turns := self._with_turns(collected)) is not None:
                if last is not None:
                    keep(last, self.transport, None)
                count, last = count + 1, with_turns
        if not reason and self.over and count < len(expected):
            reason = f"ended early, with {count} of {len(expected)} cases"
        if self.failure is None and reason:
            self.failure = self._failed(reason)
        if self.failure is not None:  # a library is known to end without a message
            of, cell = self.assignment, self.launch.cell
            output = "\n".join((str(self.failure), *self.failure.log))
            shortage = shm_shortage(cell, of.placement, of.stack) or nccl_shortage(cell, of.placement, of.stack, output)
            self.failure = self.failure if shortage is None else self.failure.saying(f"{self.failure}; {shortage}")
        if last is not None:
            keep(last, self.transport, self.failure)

    def _with_turns(self, collected: CollectedRecord) -> CollectedRecord | None:
        """The record with how it was measured; None: a world beside it did not complete the case, so it is no pair."""
        record, alone = collected.record, self.assignment.alone
        duet, broken = self.duets.get(record.case), without_measure(record.case) in self.broken
        if self.others and duet is not None and record.status == "ok":
            record = msgspec.structs.replace(record, how="duet", duet=duet)
        elif not self.others or duet is not None or broken or record.status != "ok":
            record = msgspec.structs.replace(record, how="blocks", alone="partner" if self.others else alone)
        else:
            return None
        return CollectedRecord(record, collected.samples)
