"""The clocks of hosts that share none, synchronised while cases are measured: questions and answers between ranks.

One rank of each host, its reader, exchanges with the readers of other hosts along a tree (timing/clocks.py). A
reduction tells all ranks what they found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Session
from collbench.errors import LibraryError
from collbench.machine.facts import RankFacts
from collbench.schema.record import ClockError
from collbench.timing.call import Messages
from collbench.timing.clocks import (
    BASELINE,
    EXCHANGES,
    Line,
    Offset,
    Synchronisation,
    bound_between,
    direct_pairs,
    interval,
    line_of,
    on_rank_0s_clock,
    partners,
    recent,
    surprise,
    synchronisation,
)
from collbench.timing.loop import Clock, Stamps, error_in_words, native_loop

ClockTimes = NDArray[np.int64] | None


def ask(messages: Messages, other: int, clock: Clock, n: int = EXCHANGES) -> Offset:
    """Ask another rank `n` times for its clock, while it answers. How far this one is ahead of it.

    Raises:
        LibraryError: the library returned an error.
    """
    before, theirs, after = (np.zeros(n, np.int64) for _ in range(3))
    if not _in_c(messages, other, clock, n, before, theirs, after):
        for i in range(n):
            before[i] = clock()
            messages.send(other)
            messages.receive(other)
            after[i] = clock()
            theirs[i] = messages.cell[0]
    return interval(before, theirs, after)


def answer(messages: Messages, other: int, clock: Clock, n: int = EXCHANGES) -> None:
    """Tell another rank this clock, while it asks `n` times.

    Raises:
        LibraryError: as `ask`.
    """
    if not _in_c(messages, other, clock, n, None, None, None):
        for _ in range(n):
            messages.receive(other)
            messages.cell[0] = clock()
            messages.send(other)


def _in_c(
    messages: Messages, other: int, clock: Clock, n: int, before: ClockTimes, theirs: ClockTimes, after: ClockTimes
) -> bool:
    """Exchange in C, where that is possible; whether it was."""
    loop, send, receive = native_loop(), messages.native_send(other), messages.native_receive(other)
    if loop is None or send is None or receive is None or clock is not time.monotonic_ns:
        return False
    done, code = loop.exchange(send, receive, messages.cell, n, before, theirs, after)
    if code:
        error = error_in_words(code, messages.explain)
        raise LibraryError(f"the library returned {error} in message {done + 1} of {n} to rank {other}")
    return True


#: In the place of what another host measures: less than any time.
UNKNOWN = -(2**62)


class HostClocks:
    """Synchronisations of a world's clocks. Every method but `common` is collective.

    `seen` and `bound` (ns) are of the case that was begun last: how far clocks were from where they were expected, or a
    direct measurement of two hosts from that of the tree; and how far they can have been, whatever the paths took, when
    they were synchronised and while stamps were taken.
    `lasted` (ns) is what the last synchronisation took on this rank.
    """

    def __init__(self, session: Session, readers: Mapping[str, int], clock_id: str) -> None:
        """`readers` are the first rank of each clock, rank 0's first; `clock_id` names the clock of this rank."""
        self.session = session
        self.readers = list(readers.values())
        self.host = list(readers).index(clock_id)
        self.past: list[Synchronisation] = []
        self.seen = self.bound = self.lasted = 0

    @property
    def line(self) -> Line:
        """The clock of this rank from now on, as a function of rank 0's."""
        return line_of(self.host, self.past)

    @property
    def error(self) -> ClockError:
        """For the record."""
        return ClockError(bound=self.bound * 1e-9, seen=self.seen * 1e-9, hosts=len(self.readers))

    def begin(self) -> None:
        """Synchronise before a case. For the first one twice, so that there is a rate."""
        if not self.past:
            self.synchronise()
            if self.session.clock is time.monotonic_ns:
                time.sleep(1.25e-9 * BASELINE)
        self.synchronise()
        self.seen = self.past[-1].crossed
        self.bound = max(int(sync.half.max()) for sync in self.past)  # the rate is made of them

    def resume(self) -> None:
        """Synchronise after a sleep, over which the clocks may have gone anywhere."""
        observed = self.seen
        self.synchronise()
        self.seen = max(observed, self.past[-1].crossed)

    def synchronise(self) -> None:
        """Measure all offsets anew, and see how far they are from what was expected.

        Raises:
            LibraryError: the library returned an error on this rank.
        """
        world, began = self.session.world, self.session.clock()
        table = np.full((len(self.readers), 2, len(Offset._fields)), UNKNOWN)
        if world.rank == self.readers[self.host]:
            for row, offset in zip(table[self.host], self._exchanged(), strict=False):
                row[:] = offset
        latest = _assembled(world.minmax(table.ravel())[1].reshape(table.shape))
        if self.past:
            self.seen = max(self.seen, latest.crossed, surprise(latest, self.past))
        self.bound = max(self.bound, int(latest.half.max()))
        self.past = recent([*self.past, latest])
        self.lasted = self.session.clock() - began

    def _exchanged(self) -> list[Offset]:
        """Against the parent in the tree, then, where this host is the second of a direct pair, against the first."""
        session, hosts = self.session, len(self.readers)
        messages, clock = session.signals.messages, session.clock
        assert messages is not None
        to_ask = [(pair[0], True) for pair in direct_pairs(hosts) if pair[1] == self.host]
        to_answer = [(pair[1], False) for pair in direct_pairs(hosts) if pair[0] == self.host]
        offsets = []
        for other, asks in (*partners(self.host, hosts), *to_ask, *to_answer):
            if asks:
                offsets.append(ask(messages, self.readers[other], clock))
            else:
                answer(messages, self.readers[other], clock)
        return offsets if self.host else [Offset(clock(), 0, 0)]

    def common(self, stamps: Stamps) -> Stamps:
        """Stamps of this rank between the last two synchronisations, on rank 0's clock. Their bound counts."""
        self.bound = max(self.bound, bound_between(*self.past[-2:]))

        def moved(times: NDArray[np.int64]) -> NDArray[np.int64]:
            return on_rank_0s_clock(times, self.host, *self.past[-2:])

        return replace(stamps, entered=moved(stamps.entered), left=moved(stamps.left), marks=moved(stamps.marks))


def _assembled(table: NDArray[np.int64]) -> Synchronisation:
    """From what each host found [hosts, 2, fields of an `Offset`]: against its parent, and against a direct partner."""
    to_parent, to_partner = ([Offset(*map(int, row)) for row in table[:, n]] for n in range(2))
    return synchronisation(to_parent, [(asked, asks, to_partner[asks]) for asked, asks in direct_pairs(len(table))])


def readers_of(clock_ids: Iterable[str]) -> dict[str, int]:
    """The first rank of each clock, of the clocks of all ranks."""
    readers: dict[str, int] = {}
    for rank, clock_id in enumerate(clock_ids):
        readers.setdefault(clock_id, rank)
    return readers


def host_clocks(session: Session, ranks: Sequence[RankFacts], clock_id: str) -> HostClocks | None:
    """None where all ranks read one clock, or where a backend has no messages between two ranks. Collective.

    Rank 0 alone needs the facts of all ranks; `clock_id` is this rank's own.
    """
    readers: dict[str, int] = session.world.bcast(readers_of(rank.clock_id for rank in ranks))
    if len(readers) == 1 or session.signals.messages is None:
        return None
    return HostClocks(session, readers, clock_id)
