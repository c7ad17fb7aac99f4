"""Backend `fake`: n ranks as threads of one process, exact results, simulated and repeatable times.

Ranks are threads; data really moves, by way of the collective's meaning. Time is virtual: every rank has a clock that
only advances when it is read or when something happens, by a latency-bandwidth model with seeded noise. No run can be
taken for a measurement: its manifest says `simulated`.

Faults on demand (`--fault KIND:RANK@N`, from the N-th operation of that rank on; `KIND:RANK%P`, in P % of them):
`corrupt` changes one element of the result (a barrier leaves early), `raise` raises, `hang` never returns.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Backend, HostArguments, Operation, Session, World, WorldSettings, operation_of
from collbench.collectives.row import Array, Collective, CollectiveCase, Prepared, fold
from collbench.errors import LostRankError, RequestError, Unsupported
from collbench.schema.axes import DTYPES, OPS, Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.timing.loop import Signals, whole


@dataclass(frozen=True)
class Fault:
    """What goes wrong, on which rank, from which of its operations on, and in which share of them."""

    kind: str
    rank: int
    at: int
    share: float = 1.0

    @staticmethod
    def parse(text: str) -> Fault:
        """`corrupt:1@5`. Raises RequestError: not of that form."""
        match = re.fullmatch(r"(corrupt|raise|hang):(\d+)(?:@(\d+))?(?:%([1-9]\d?))?", text)
        if match is None:
            raise RequestError(
                f"--fault {text!r}: write corrupt:RANK, raise:RANK or hang:RANK; then @N, %P or nothing."
            )
        return Fault(match[1], int(match[2]), int(match[3] or 0), int(match[4] or 100) / 100)


class Hub:
    """What the threads share: a barrier, a slot for each rank, and virtual clocks for those that simulate time."""

    def __init__(self, ranks: int, timeout: float) -> None:
        self.ranks = ranks
        self.slots: list[Any] = [None] * ranks
        self.clocks = [0] * ranks
        self._barrier = threading.Barrier(ranks, timeout=timeout)

    def wait(self) -> None:
        """Meet all ranks. Raises LostRankError: one of them is gone."""
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise LostRankError("fake: another rank left") from None

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """All ranks' values, by rank."""
        self.slots[rank] = value
        self.wait()
        values = list(self.slots)
        self.wait()
        return values

    def leave(self) -> None:
        """From now on every wait raises LostRankError, also those under way."""
        self._barrier.abort()


class FakeWorld(World):
    """The control plane over the hub."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub, self.rank, self.size = hub, rank, hub.ranks

    def gather(self, value: Any) -> list[Any] | None:
        values = self._hub.exchange(self.rank, value)
        return values if self.rank == 0 else None

    def bcast_from(self, value: Any, source: int) -> Any:
        return self._hub.exchange(self.rank, value)[source]

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        fold = np.minimum if smallest else np.add
        result: NDArray[np.int64] = fold.reduce(self._hub.exchange(self.rank, values))
        return result


def run_ranks(hub: Hub, body: Callable[[int], None], timeout: float) -> None:
    """The body for every rank: of rank 0 in this thread, of the others in daemon threads, given `timeout` s to end.

    Raises the first error of any rank; that another one left is only what follows from it.
    """
    errors: list[BaseException] = []

    def run_rank(rank: int) -> None:
        try:
            body(rank)
        except BaseException as error:
            errors.append(error)
            hub.leave()

    threads = [threading.Thread(target=run_rank, args=(rank,), daemon=True) for rank in range(1, hub.ranks)]
    for thread in threads:
        thread.start()
    run_rank(0)
    for thread in threads:
        thread.join(timeout=timeout)
    for error in sorted(errors, key=lambda error: isinstance(error, LostRankError)):
        raise error


DEFAULT_RANKS = 4
MOST_RANKS = 256

#: The model: 2 us and 10 GB/s per link, noise of 2 %, 20 ns per reading of the clock.
_LATENCY, _BANDWIDTH, _NOISE, _CLOCK_READ, _BARRIER = 2_000.0, 10.0, 0.02, 20, 300


class FakeSession(Session):
    """One rank, which is a thread."""

    transport = "simulated"

    def __init__(self, hub: Hub, rank: int, level: ThreadLevel, fault: Fault | None) -> None:
        self._hub, self._rank = hub, rank
        self._fault = fault if fault is not None and fault.rank == rank else None
        self._operations = 0
        self.thread_level, self.world, self.clock = level, FakeWorld(hub, rank), self.moment
        start = np.zeros(1, np.int64)

        def announce() -> None:
            start[0] = self.meet(int(start[0]), _BARRIER)[0]

        self.signals = Signals(lambda: self.meet(None, _BARRIER), announce, start, announces=rank == 0)

    def moment(self) -> int:
        """The time of this rank, a little later whenever it is asked for."""
        self._hub.clocks[self._rank] += _CLOCK_READ
        return self._hub.clocks[self._rank]

    def meet(self, value: Any, cost: float) -> list[Any]:
        """Exchange values; then all clocks are `cost` ns after the latest arrival, that of rank r 10 r ns more."""
        values = self._hub.exchange(self._rank, (value, self._hub.clocks[self._rank]))
        latest = max(clock for _, clock in values)
        self._hub.clocks[self._rank] = latest + int(cost) + 10 * self._rank
        return [value for value, _ in values]

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        if case.in_place and not row.has_in_place:
            raise Unsupported(f"{row.name} has no in-place form")
        buffers = FakeBuffers(case, row, count, self._rank)
        operation = FakeOperation(self, case, row, buffers)
        call = whole(operation, why_not_native="the fake backend has no C function")
        prepared = Prepared(buffers.input, buffers.output, in_place=case.in_place)
        return operation_of(prepared, call, buffers.blocks_held)

    def due(self) -> str | None:
        """The fault of the operation that starts now, if any."""
        self._operations += 1
        fault = self._fault
        if fault is None or self._operations <= fault.at or random.random() >= fault.share:  # noqa: S311 - a fault
            return None
        return fault.kind

    def is_lost_rank(self, error: BaseException) -> bool:
        return isinstance(error, LostRankError)

    def turn_back(self, moment: int) -> None:
        """Set this rank's time: as if it had not waited for the others."""
        self._hub.clocks[self._rank] = moment

    def abort(self, code: int) -> None:
        raise SystemExit(code)


class FakeBuffers(HostArguments):
    """Input and output of one rank; in place, the smaller of the two is a part of the larger."""

    @cached_property
    def output(self) -> tuple[Array, ...]:
        if self._blocks.recv == 0:
            return ()
        if self.in_place and self._blocks.send > self._blocks.recv:
            first = self.rank if self._blocks.send == self.ranks else 0
            return (self.send[first : first + self._blocks.recv],)
        return (self.recv,)

    @cached_property
    def input(self) -> Any:
        if self._blocks.send == 0:
            return None
        if self.in_place and 0 < self._blocks.send <= self._blocks.recv:
            first = self.rank if self._blocks.recv > self._blocks.send else 0
            return self.recv[first : first + self._blocks.send]
        return self.send


class FakeOperation:
    """Callable that carries out one case on one rank."""

    def __init__(self, session: FakeSession, case: CollectiveCase, row: Collective, buffers: FakeBuffers) -> None:
        self._session, self._case, self._row, self._buffers = session, case, row, buffers
        self._random = random.Random(case.identity.key)  # noqa: S311 - noise, not secrecy
        moved = row.size(buffers.count, DTYPES[case.dtype], case.ranks)
        self._cost = _LATENCY + moved * max(row.bus_factor(case.ranks), 0.0) / _BANDWIDTH

    def __call__(self) -> None:
        """Perform it once, with the fault that is due."""
        fault = self._session.due()
        if fault == "raise":
            raise RuntimeError("fake: raised on demand")
        if fault == "hang":
            threading.Event().wait()
        entered = self._session.moment()
        noise = 1.0 + abs(self._random.gauss(0.0, _NOISE))
        sent = self._buffers.input
        contribution = np.empty((0, self._buffers.count)) if sent is None else sent.copy()
        inputs = self._session.meet(contribution, self._cost * noise)
        result = self._row.meaning(self._buffers.rank, inputs, self._case.root or 0, fold(self._case.op))
        if fault == "corrupt" and not self._row.moves_data:
            self._session.turn_back(entered)
        if result is None:
            return
        (output,) = self._buffers.output
        output[...] = result
        if fault == "corrupt" and output.size:
            output.reshape(-1).view(np.uint8)[0] ^= 1


class FakeBackend(Backend):
    """See the module."""

    name = "fake"
    summary = "in-process ranks with simulated times, for tests and demonstrations"
    simulated = True
    ops: tuple[Op, ...] = OPS
    #: Makes the session of a rank.
    session: Callable[[Hub, int, ThreadLevel, Fault | None], FakeSession] = FakeSession

    def missing(self) -> str | None:
        return None

    def world_size(self, options: WorldSettings) -> int:
        """`--ranks`, 4 without it. Raises RequestError: too many for threads in one process."""
        ranks = DEFAULT_RANKS if options.ranks is None else options.ranks
        if not 1 <= ranks <= MOST_RANKS:
            raise RequestError(f"--ranks {ranks}: the fake backend runs 1 to {MOST_RANKS} ranks.")
        if options.fault is not None and Fault.parse(options.fault).rank >= ranks:
            raise RequestError(f"--fault {options.fault}: there are {ranks} ranks, 0 to {ranks - 1}.")
        return ranks

    def dtypes(self) -> tuple[str, ...]:
        return tuple(DTYPES)

    def libraries(self) -> tuple[Library, ...]:
        return (Library(name="fake (simulated times)", version="1"),)

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        fault = None if options.fault is None else Fault.parse(options.fault)
        hub, level = Hub(self.world_size(options), options.timeout + 5.0), options.thread_level
        run_ranks(hub, lambda rank: body(self.session(hub, rank, level, fault)), options.timeout)


BACKEND = FakeBackend()
