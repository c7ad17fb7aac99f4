"""Clocks of hosts that share none: offsets by intervals, a tree of hosts, a model between two synchronisations. Pure.

A host asks another one for its clock, many times. The answer was stamped after the question was sent and before the
answer arrived, so that every exchange bounds the offset on both sides, whatever the two ways took (Cristian,
"Probabilistic clock synchronization", Distributed Computing 3, 1989). Of all exchanges the largest lower and the
smallest upper bound count (the intersection of Marzullo and Owicki, "Maintaining the time in a distributed system",
PODC 1983). No path needs to be symmetric, and nothing is learned of a clock's rate: between two synchronisations an
offset is interpolated.

All times are nanoseconds.

CLOCK_MONOTONIC is given in nanoseconds, but the counter behind it may step by 10 ns or 42 ns. A time of some
hundred nanoseconds is then a small multiple of the step, whatever a statistic makes of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    crossed = [abs(measured.offset - int(offset[second] - offset[first])) for first, second, measured in direct]
    return Synchronisation(
        np.array([measured.at for measured in to_parent], np.int64), offset, half, max(crossed, default=0)
    )


@dataclass(frozen=True)
class Line:
    """A clock as a function of rank 0's: ahead by `offset` when rank 0's shows `origin`, and by `slope` more per ns."""

    offset: int = 0
    slope: float = 0.0
    origin: int = 0

    def local(self, first: int) -> int:
        """What this clock shows when rank 0's shows `first`."""
        return first + self.offset + int(self.slope * (first - self.origin))


#: The line of rank 0's own clock.
SAME = Line()


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


#: Pairs of reads that lie farther apart than this (ns) are left out: the phase of a wrong step adds up over them.
_FARTHEST = 400
#: Steps that are searched for between reads (ns). With a longer one, neighbouring reads are equal.
_LONGEST, _SHORTEST = 200.0, 2.0
#: Coherence above which reads lie on multiples of a step. Rounding to whole ns leaves 0.97 for 10 ns, 0.81 for 4 ns.
_COHERENT = 0.75
#: How far (ns) a difference of two readings may be from a multiple of the step: each reading was rounded down. Reads
#: that all take about 100 ns are coherent at 100 ns whatever the step is.
_OFF, _OFTEN = 2.0, 0.98
_READS, _WINDOW = 200, 12


def clock_step(clock: Callable[[], int] = time.monotonic_ns) -> float:
    """Nanoseconds from one value that `clock` can show to the next, at least 1."""
    reads = np.array([clock() for _ in range(_READS)], dtype=np.int64)
    steps = np.diff(reads)
    if np.any(steps == 0) and np.any(steps > 0):
        return float(np.min(steps[steps > 0]))  # several reads within one step
    spans = np.concatenate([reads[lag:] - reads[:-lag] for lag in range(1, _WINDOW)])
    return max(lattice(spans[(spans > 0) & (spans < _FARTHEST)]), 1.0)


def lattice(values: NDArray[np.int64]) -> float:
    """The longest step of which all `values` [n] in ns are multiples, up to rounding; 0.0 where there is none.

    The measure is |mean exp(2 pi i v / step)|, which is 1 on a lattice and near 0 elsewhere (Rayleigh). A step
    counts only if three consecutive multiples occur, as two clusters of values are no lattice, and if the values lie
    on its multiples, not merely near them.
    """
    if len(values) < 3:
        return 0.0
    frequencies = np.arange(1 / _LONGEST, 1 / _SHORTEST, 0.2 / _FARTHEST)
    distinct, counts = np.unique(values, return_counts=True)
    phases = np.exp(2j * np.pi * np.outer(frequencies, distinct))
    coherence = np.abs(phases @ counts) / counts.sum()
    for frequency in frequencies[coherence >= _COHERENT]:
        multiples = np.unique(np.rint(distinct * frequency))
        if np.any(multiples[2:] - multiples[:-2] == 2):
            near = (frequencies >= frequency) & (frequencies < 1.3 * frequency)
            step = float(1 / frequencies[near][np.argmax(coherence[near])])
            off = np.abs(distinct - step * np.rint(distinct / step))
            if counts[off <= _OFF].sum() >= _OFTEN * counts.sum():
                return step
    return 0.0
