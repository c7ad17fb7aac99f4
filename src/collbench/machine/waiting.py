"""How long tasks of this machine waited for CPUs, and what the cores of this process were used for, over some time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from collbench.machine import cgroup, facts
from collbench.machine.facts import CoreTimes


@dataclass(frozen=True)
class Waited:
    """Seconds since boot that tasks of this machine waited for a CPU; by control group, CPU seconds of throttling.

    `used` is what the cores of this process were used for, without what it used itself. None: the kernel does not say.
    """

    stalled: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    used: CoreTimes | None = None

    def since(self, before: Waited) -> Waited:
        """The increase since an earlier look."""
        return _combined(self, before, -1)


def _combined(one: Waited, two: Waited, sign: Literal[1, -1]) -> Waited:
    """Sum or difference; unknown where one of the two is."""
    stalled = None if one.stalled is None or two.stalled is None else one.stalled + sign * two.stalled
    groups = one.throttled.keys() & two.throttled
    throttled = {group: one.throttled[group] + sign * two.throttled[group] for group in groups}
    if one.used is None or two.used is None:
        return Waited(stalled, throttled)
    user, system, steal = (
        getattr(one.used, name) + sign * getattr(two.used, name) for name in ("user", "system", "steal")
    )
    return Waited(stalled, throttled, CoreTimes(one.used.cores, user, system, steal))


def now() -> Waited:
    return Waited(facts.cpu_stall_seconds(), cgroup.throttled_seconds(), facts.core_times())


@dataclass(frozen=True)
class Stretch:
    """The increase in so many seconds, which need not be in one piece."""

    seconds: float
    added: Waited

    def and_then(self, other: Stretch) -> Stretch:
        """Both together."""
        return Stretch(self.seconds + other.seconds, _combined(self.added, other.added, 1))


class ContentionMeter:
    """The time in which something is measured, without what lies between `stop` and `start`. `clock` is in ns."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, look: Callable[[], Waited] = now) -> None:
        self._clock, self._look = clock, look
        self._began: tuple[Waited, int] | None = None
        self._passed: Stretch | None = None

    def start(self) -> None:
        self._began = (self._look(), self._clock())

    def stop(self) -> None:
        """Without effect where it does not run."""
        if self._began is not None:
            before, began = self._began
            stretch = Stretch((self._clock() - began) * 1e-9, self._look().since(before))
            self._passed = stretch if self._passed is None else self._passed.and_then(stretch)
            self._began = None

    def reset(self) -> None:
        """Forget what has passed."""
        self._began = self._passed = None

    @property
    def passed(self) -> Stretch:
        return self._passed or Stretch(0.0, Waited())
