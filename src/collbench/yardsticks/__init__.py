"""Yardsticks: what the cores of a machine are like now, each in one number that knows nothing of what is compared."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

from collbench.schema.store import NoReading

#: A reading of one yardstick ends after so many seconds.
LIMIT = 1.0

#: Begin and end (ns) of what each core did: `_yardsticks.run`.
RunYardstick = Callable[[str, tuple[int, ...], int, int, float], tuple[tuple[int, int], ...]]

_REASONS: dict[int | None, NoReading] = {errno.EINVAL: "core_refused", errno.ETIMEDOUT: "late"}


@dataclass(frozen=True)
class Yardstick:
    """A row of readings. `read` takes the C function and the cores, ascending, and gives a value in `unit`.

    A change by more than the share `resolution` counts as one. `fewest` are the cores that it needs.

    `read` raises:
        OSError: EINVAL for a core that this process may not use, ETIMEDOUT after `LIMIT`, else what is lacking.
    """

    unit: str
    resolution: float
    read: Callable[[RunYardstick, tuple[int, ...]], float]
    fewest: int = 1


@dataclass(frozen=True)
class Readings:
    """Values by yardstick, and why the first of them that is None is so; None: none is."""

    values: dict[str, float | None]
    reason: NoReading | None = None


#: Bytes of a core's block, of all blocks together at most, and how often it is copied.
BLOCK, MOST, ROUNDS = 4 << 20, 128 << 20, 8

#: Trips of a cache line in a batch, and batches of a pair of cores.
TRIPS, BATCHES = 500, 40

#: Every pair is measured up to so many, else a sample, which is the same at each reading of the same cores.
PAIRS = 6

#: Steps of a piece of the integer loop, and pieces: some 10 ms.
STEPS, PIECES = 1_000_000, 8


def copy(run: RunYardstick, cores: tuple[int, ...]) -> float:
    """Bytes read and written in a second by all cores together, each of which copies a block."""
    block = min(BLOCK, MOST // len(cores))
    done = run("copy", cores, block, ROUNDS, LIMIT)
    took = max(ended for _, ended in done) - min(began for began, _ in done)
    return 2 * block * ROUNDS * len(cores) / took


def pairs_of(cores: tuple[int, ...]) -> list[tuple[int, int]]:
    pairs = list(combinations(cores, 2))
    return pairs if len(pairs) <= PAIRS else random.Random(1).sample(pairs, PAIRS)  # noqa: S311 - no secret


def core_distance(run: RunYardstick, cores: tuple[int, ...]) -> float:
    """The way of a cache line from a core to another and back.

    The mean over pairs of cores of the shortest batch of each. The hypervisor of a virtual machine moves its cores.
    """
    pairs = pairs_of(cores)
    batches = [run("exchange", pair, TRIPS, BATCHES, LIMIT / len(pairs))[0] for pair in pairs]
    return sum(ended - began for began, ended in batches) / TRIPS / len(pairs)


def core_speed(run: RunYardstick, cores: tuple[int, ...]) -> float:
    """Steps of a fixed integer loop in a microsecond, on the slowest core of all at once.

    It changes with the clock rate, and where a hypervisor or another process takes time from a core.
    """
    slowest = max(ended - began for began, ended in run("compute", cores, STEPS, PIECES, LIMIT))
    return STEPS * PIECES * 1e3 / slowest


#: By name, in alphabetical order.
YARDSTICKS = {
    "copy": Yardstick("GB/s", 0.2, copy),
    "core_distance": Yardstick("ns", 0.2, core_distance, fewest=2),
    "core_speed": Yardstick("1/us", 0.1, core_speed),
}


def resolutions() -> dict[str, float]:
    """By yardstick, the share by which it must change to have changed."""
    return {name: yardstick.resolution for name, yardstick in YARDSTICKS.items()}


def native_run() -> RunYardstick | None:
    """The part in C; None where it could not be built."""
    try:
        from collbench.yardsticks import _yardsticks
    except ImportError:
        return None
    run: RunYardstick = _yardsticks.run  # type: ignore[assignment]
    return run


def take(cores: Iterable[int]) -> Readings:
    """Read every yardstick on these cores of this machine, one after the other; none: they are elsewhere.

    Takes some 20 ms where the cores are idle. The affinity of this process stays as it is.
    """
    wanted, run = tuple(sorted(set(cores))), native_run()
    values: dict[str, float | None] = dict.fromkeys(YARDSTICKS)
    if not wanted or run is None:
        return Readings(values, "not_built" if wanted else "elsewhere")
    reasons: list[NoReading] = []
    for name, yardstick in YARDSTICKS.items():
        if len(wanted) < yardstick.fewest:
            reasons.append("too_few_cores")
            continue
        try:
            values[name] = yardstick.read(run, wanted)
        except OSError as error:
            reasons.append(_REASONS.get(error.errno, "failed"))
    return Readings(values, reasons[0] if reasons else None)
