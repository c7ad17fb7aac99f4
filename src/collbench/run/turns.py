"""The turns of a rank in a world beside others: it sleeps in a pipe until its world is to go on.

The driver opens all pipes before a world exists, and a rank opens one end of its own: once the driver is gone, the rank
reads the end of its orders.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import World
from collbench.errors import Interrupted, RequestError
from collbench.machine.shareable import shareable
from collbench.run.samples import Times
from collbench.run.sampling import Sampling, Watch
from collbench.schema.case import Case
from collbench.schema.turns import ORDERS, REPORTS, Order, Report
from collbench.timing.loop import Stamps

#: How often a sleeping rank tells its watchdog that it lives (s).
NAP = 1.0

#: A slice without a quota lasts as the rule says; with one so many of its periods (s, of 100 ms as is usual).
QUOTA_SLICE = 1.0

#: Most samples that are taken between two looks at the clock.
BATCH = 5_000

#: Share of the samples of a slice that is left out at either end. A median of few steps of the clock can only be one of
#: them, 4.5 % apart at 8 B.
TRIMMED = 0.1


class Turns:
    """The pipes of a rank. `wait` is collective; what it writes and reads is told above."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        try:
            self._orders = os.open(folder / ORDERS.format(rank=rank), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self._reports = os.open(folder / REPORTS, os.O_WRONLY | os.O_CLOEXEC) if rank == 0 else -1
        except OSError as error:
            raise RequestError(f"--turns {folder}: {error.strerror}. Leave it to collbench launch.") from error
        self._met, self._asleep, self._slept = False, 0, 0.0

    def wait(self, report: Report, world: World, watch: Watch, doing: str) -> Order:
        """Report where the world stands, and sleep until it is to go on.

        Raises:
            Interrupted: the driver is gone.
        """
        asleep = int(world.total([self._asleep])[0]) * 1e-9
        report = msgspec.structs.replace(report, asleep=asleep, slept=self._slept, holds=self._held(world))
        watch.beat(f"{doing}: waiting for its turn")
        if self._reports >= 0:
            _write(self._reports, msgspec.json.encode(report) + b"\n")
        used, began = time.process_time_ns(), time.monotonic()
        line = self._sleep(watch, doing)
        self._asleep, self._slept = time.process_time_ns() - used, time.monotonic() - began
        watch.beat(doing)
        return msgspec.json.decode(line, type=Order)

    def stands(self, case: Case | None, world: World, watch: Watch) -> Order:
        """Before a case that is measured; None: after the last one."""
        doing = "ending" if case is None else f"before {case.workload}"
        return self.wait(Report(at="stands", case=case), world, watch, doing)

    def close(self) -> None:
        """Give the pipes back."""
        for descriptor in (self._orders, self._reports):
            if descriptor >= 0:
                os.close(descriptor)

    def _held(self, world: World) -> tuple[str, ...]:
        """Before its first turn, what the ranks hold that others may hold too."""
        if self._met:
            return ()
        self._met = True
        held: Sequence[frozenset[str]] = world.gather(shareable(frozenset((self._orders, self._reports)))) or ()
        return tuple(sorted(frozenset().union(*held)))

    def _sleep(self, watch: Watch, doing: str) -> bytes:
        """The next line of the orders."""
        poll, line = select.poll(), b""
        poll.register(self._orders, select.POLLIN)
        while not line.endswith(b"\n"):
            if poll.poll(NAP * 1000):
                piece = b""
                with contextlib.suppress(BlockingIOError):
                    piece = os.read(self._orders, 1 << 12)
                    if not piece:
                        raise Interrupted("the driver of this launch is gone.")
                line += piece
            watch.beat(f"{doing}: waiting for its turn")
            if watch.stopped is not None:
                raise Interrupted("interrupted.")
        return line


def _write(pipe: int, line: bytes) -> None:
    while line:
        line = line[os.write(pipe, line) :]


def sampled_in_turns(sampling: Sampling, turns: Turns, watch: Watch, doing: str, quota: bool) -> bool:
    """Measure slices of a case as ordered, until it ends; whether it did: else it is to be measured alone. Collective.

    `quota`: a quota of processor time confines the ranks.
    """
    world = sampling.timed_call.session.world
    report = Report(at="ready", gate=sampling.gate.kind, slack=sampling.gate.slack,
                    shortest=QUOTA_SLICE if quota else 0.0)  # fmt: skip
    while (order := turns.wait(report, world, watch, doing)).act == "slice":
        report = _slice(sampling, order, watch, doing)
    return order.act == "end"


def _slice(sampling: Sampling, order: Order, watch: Watch, doing: str) -> Report:
    if order.anew:
        sampling.anew(order.gate)
    sampling.gate = sampling.gate.with_slack(order.slack)
    sampling.displace()
    watch.beat(f"{doing}: timing")
    rule = order.rule
    _taken(sampling, rule.discard, rule.discard_seconds, longest=rule.seconds)
    stamps = _taken(sampling, order.operations or rule.operations, 0.0 if order.operations else order.seconds,
                    longest=0.0 if order.operations else rule.longest)  # fmt: skip
    sampling.keep(stamps, rule.rounds)
    times = sampling.times(stamps)
    halves = [_trimmed(half) for half in np.array_split(times.samples, 2)]
    both = (halves[0], halves[1]) if halves[0] is not None and halves[1] is not None else None
    return Report(at="slice", gate=sampling.gate.kind, n=len(times.samples),
                  late=_late(times), seconds=_trimmed(times.samples), halves=both)  # fmt: skip


def _late(times: Times) -> int:
    return len(times.samples) - int(np.count_nonzero(times.in_time))


def _taken(sampling: Sampling, least: int, seconds: float, longest: float) -> Stamps:
    """At least so many samples, and for so many seconds; with a `longest` time (s), fewer if they take longer.

    Rank 0 looks at the clock. Collective.
    """
    session, done = sampling.timed_call.session, list[Stamps]()
    began, taken = session.clock(), 0
    while True:
        n: int = session.world.bcast(_next(taken, (session.clock() - began) * 1e-9, least, seconds, longest))
        if n == 0:
            return Stamps.concatenate(done)
        done.append(sampling.timed_call.run(sampling.gate, n))
        taken += n


def _next(taken: int, passed: float, least: int, seconds: float, longest: float) -> int:
    """Samples of the next batch, after so many in so many seconds; 0: it is enough."""
    if taken == 0:
        return 1 if longest else min(least, BATCH)
    if longest and passed >= longest:
        return 0
    pace = max(passed / taken, 1e-9)
    wanted = max(least - taken, math.ceil((seconds - passed) / pace), 0)
    affordable = max(int((longest - passed) / pace), 1) if longest else wanted
    return min(wanted, affordable, BATCH)


def _trimmed(samples: NDArray[np.int64]) -> float | None:
    """Mean (s) of the middle 80 % of the samples in time; None where there are none."""
    valid = np.sort(samples[samples > 0])
    cut = int(len(valid) * TRIMMED)
    middle = valid[cut : len(valid) - cut]
    return float(middle.mean()) * 1e-9 if len(middle) else None
