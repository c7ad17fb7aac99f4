"""The clocks of hosts that share none, synchronised while cases are measured.

A host asks another one for its clock, many times. The answer was stamped after the question was sent and before the
answer arrived, so that every exchange bounds the offset on both sides, whatever the two ways took (Cristian,
"Probabilistic clock synchronization", Distributed Computing 3, 1989). Of all exchanges the largest lower and the
smallest upper bound count (the intersection of Marzullo and Owicki, "Maintaining the time in a distributed system",
PODC 1983). No path needs to be symmetric, and nothing is learned of a clock's rate: between two synchronisations an
offset is interpolated.

One rank of each host, its reader, exchanges with the readers of other hosts along a tree. A reduction tells all ranks
what they found. All times are nanoseconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Session
from collbench.errors import LibraryError
from collbench.machine.facts import RankFacts
from collbench.run.facts_of_ranks import by_key
from collbench.schema.record import ClockError
from collbench.timing.loop import Clock, Line, Messages, Stamps, error_in_words, native_loop

#: Questions to another host in one synchronisation.
EXCHANGES = 50

#: By how much the rates of two clocks may differ: the kernel lets NTP correct a rate by 500 ppm (adjtimex(2), `freq`).
#: What a daemon does by `tick`, as chrony may, is not covered.
LARGEST_RATE = 5e-4

#: A rate is taken from synchronisations that lie at least this far apart: over less, their errors would be a rate.
BASELINE = 200_000_000

#: Most pairs of hosts that compare their clocks directly in a synchronisation.
MOST_PAIRS = 3


class Offset(NamedTuple):
    """How far a clock is ahead of another one: within `half` of `offset`, when it shows `at` itself."""

    at: int
    offset: int
    half: int


def interval(before: NDArray[np.int64], theirs: NDArray[np.int64], after: NDArray[np.int64]) -> Offset:
    """From exchanges [n]: this clock before a question was sent, the other's in between, this one after the answer.

    A bound of an earlier exchange is as much looser as the clocks may have run apart since (`LARGEST_RATE`).
    """
    at = int(after[-1])
    apart = np.ceil((at - before) * LARGEST_RATE).astype(np.int64)
    lower = int((before - theirs - apart).max())
    upper = int((after - theirs + apart).min())
    return Offset(at, (lower + upper) // 2, (abs(upper - lower) + 1) // 2)


def partners(host: int, hosts: int) -> Iterator[tuple[int, bool]]:
    """With whom a host exchanges, in this order, and whether it asks: a binomial tree in log2(hosts) rounds.

    A host's parent has its lowest set bit cleared. It first answers its children, and then asks its parent.
    """
    bit = 1
    while bit < hosts:
        if host & bit:
            yield host - bit, True
            return
        if host + bit < hosts:
            yield host + bit, False
        bit <<= 1


def direct_pairs(hosts: int) -> tuple[tuple[int, int], ...]:
    """At most three pairs of hosts that are not parent and child; no host is in two of them. The second asks."""
    pairs = [(host, host + 1) for host in range(1, hosts - 1, 2)]
    if len(pairs) <= MOST_PAIRS:
        return tuple(pairs)
    return (pairs[0], pairs[len(pairs) // 2], pairs[-1])


@dataclass(frozen=True)
class Synchronisation:
    """All hosts' clocks against rank 0's, each [hosts]: `offset` ahead of it within `half`, when they showed `at`.

    `crossed` is the largest difference between an offset that was measured directly and that of the tree.
    """

    at: NDArray[np.int64]
    offset: NDArray[np.int64]
    half: NDArray[np.int64]
    crossed: int = 0

    @property
    def when(self) -> NDArray[np.int64]:
        """[hosts]: the time of each on rank 0's clock."""
        return self.at - self.offset


def synchronisation(to_parent: Sequence[Offset], direct: Sequence[tuple[int, int, Offset]] = ()) -> Synchronisation:
    """Sums along the tree. `to_parent` [hosts] is each host against its parent; the first's is 0, within 0.

    A parent's own offset was measured at another moment, since when the clocks may have run apart (`LARGEST_RATE`).
    `direct` are pairs (asked, asks, the second against the first).
    """
    hosts = len(to_parent)
    offset, half = np.zeros(hosts, np.int64), np.zeros(hosts, np.int64)
    for host in range(1, hosts):
        parent = host & (host - 1)
        measured = to_parent[host]
        difference = abs(measured.at - measured.offset - to_parent[parent].at) if parent else 0
        offset[host] = measured.offset + offset[parent]
        half[host] = measured.half + half[parent] + math.ceil(difference * LARGEST_RATE)
    crossed = (abs(measured.offset - int(offset[second] - offset[first])) for first, second, measured in direct)
    at = np.array([measured.at for measured in to_parent], np.int64)
    return Synchronisation(at, offset, half, max(crossed, default=0))


def line_of(host: int, past: Sequence[Synchronisation]) -> Line:
    """From the last synchronisation on; the rate is that since the last one that lies far enough back, else 0.

    It is the mean of that rate and of 0, weighed by the inverse squares of their errors: the half widths of both
    offsets over the time between them, and `LARGEST_RATE`.
    """
    last = past[-1]
    now = int(last.when[host])
    earlier = [sync for sync in past[:-1] if now - int(sync.when[host]) >= BASELINE]
    slope = 0.0
    if earlier:
        first = earlier[-1]
        elapsed = now - int(first.when[host])
        error = int(first.half[host] + last.half[host]) / elapsed
        slope = int(last.offset[host] - first.offset[host]) / elapsed / (1 + (error / LARGEST_RATE) ** 2)
    return Line(int(last.offset[host]), slope, now)


def recent(past: Sequence[Synchronisation]) -> list[Synchronisation]:
    """Those that `line_of` may need from now on."""
    far = [n for n, sync in enumerate(past) if int(past[-1].when[0] - sync.when[0]) >= BASELINE]
    return list(past[max(far, default=0) :])


def surprise(latest: Synchronisation, past: Sequence[Synchronisation]) -> int:
    """How far the clocks are from where the synchronisations before said that they would be, on the worst host."""
    hosts = range(len(latest.offset))
    return max(abs(int(latest.at[host]) - line_of(host, past).local(int(latest.when[host]))) for host in hosts)


def bound_between(before: Synchronisation, after: Synchronisation) -> int:
    """How far a clock may be, between two synchronisations, from where interpolation has it, on the worst host (ns).

    At either end it is within `half`, and from there on it may run apart by `LARGEST_RATE` until the middle.
    """
    between = int(after.when[0] - before.when[0])
    return int(np.maximum(before.half, after.half).max()) + math.ceil(LARGEST_RATE * between / 2)


def on_rank_0s_clock(
    times: NDArray[np.int64], host: int, before: Synchronisation, after: Synchronisation
) -> NDArray[np.int64]:
    """Times of a host's clock as rank 0's clock shows them, interpolated between two synchronisations."""
    begin, gained = int(before.at[host]), int(after.offset[host] - before.offset[host])
    rate = gained / max(int(after.at[host]) - begin, 1)
    moved: NDArray[np.int64] = times - (int(before.offset[host]) + np.rint((times - begin) * rate).astype(np.int64))
    return moved


# Questions and answers between ranks ----------------------------------------------------------------------------------


def ask(messages: Messages, other: int, clock: Clock, n: int = EXCHANGES) -> Offset:
    """Ask another rank `n` times for its clock, while it answers: how far this one is ahead. Raises LibraryError."""
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
    """Tell another rank this clock, while it asks `n` times."""
    if not _in_c(messages, other, clock, n, None, None, None):
        for _ in range(n):
            messages.receive(other)
            messages.cell[0] = clock()
            messages.send(other)


def _in_c(messages: Messages, other: int, clock: Clock, n: int, *times: NDArray[np.int64] | None) -> bool:
    """Exchange in C, where that is possible; whether it was."""
    loop, send, receive = native_loop(), messages.native_send(other), messages.native_receive(other)
    if loop is None or send is None or receive is None or clock is not time.monotonic_ns:
        return False
    done, code = loop.exchange(send, receive, messages.cell, n, *times)
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
    they were synchronised and while stamps were taken. `lasted` (ns) is what the last one took on this rank.
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
        """Measure all offsets anew, and see how far they are from what was expected; errors as of `ask`."""
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
        moved = partial(on_rank_0s_clock, host=self.host, before=self.past[-2], after=self.past[-1])
        return replace(stamps, entered=moved(stamps.entered), left=moved(stamps.left), marks=moved(stamps.marks))


def _assembled(table: NDArray[np.int64]) -> Synchronisation:
    """From what each host found [hosts, 2, fields of an `Offset`]: against its parent, and against a direct partner."""
    to_parent, to_partner = ([Offset(*map(int, row)) for row in table[:, n]] for n in range(2))
    pairs = direct_pairs(len(table))
    return synchronisation(to_parent, [(answering, asking, to_partner[asking]) for answering, asking in pairs])


def readers_of(clock_ids: Iterable[str]) -> dict[str, int]:
    """The first rank of each clock, of the clocks of all ranks."""
    return {clock_id: ranks[0] for clock_id, ranks in by_key(clock_ids).items()}


def host_clocks(session: Session, ranks: Sequence[RankFacts], clock_id: str) -> HostClocks | None:
    """None where all ranks read one clock, or where a backend has no messages between two ranks. Collective.

    Rank 0 alone needs the facts of all ranks; `clock_id` is this rank's own.
    """
    readers: dict[str, int] = session.world.bcast(readers_of(rank.clock_id for rank in ranks))
    if len(readers) == 1 or session.signals.messages is None:
        return None
    return HostClocks(session, readers, clock_id)
