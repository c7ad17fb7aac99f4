"""Whether ranks waited for processors while they were timed: for other tasks, or for their control group's quota."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.backends.parts import cgroup
from collbench.backends.parts.interface import World, allgather
from collbench.run import facts

#: A share of the time in which a quota may stop a rank before it counts: it is never stopped by accident.
THROTTLED_SHARE = 0.01


@dataclass(frozen=True)
class Waited:
    """Seconds since boot: of this machine's tasks for a CPU, and of this process's group because of its quota."""

    stalled: float | None = None
    throttled: float | None = None


def now() -> Waited:
    """What the kernel tells."""
    return Waited(facts.cpu_stall_seconds(), cgroup.throttled_seconds())


def since(before: Waited, seconds: float, world: World) -> tuple[bool | None, tuple[str, ...]]:
    """Collective. Whether a rank was held up for more than a small share of `seconds`, and what a reader must know.

    None where the kernel does not tell. A quota (`docker run --cpus`) is invisible to the ranks: they see every
    processor, and are stopped for the rest of each period once it is used up.
    """
    after = now()
    stalled = _share(before.stalled, after.stalled, seconds)
    held = allgather(world, _share(before.throttled, after.throttled, seconds))
    worst = max((share for share in held if share is not None), default=0.0)
    if worst > THROTTLED_SHARE:
        rank = held.index(worst)
        return True, (f"rank {rank} was stopped for {worst:.0%} of the time: its group's CPU quota was used up",)
    return None if stalled is None else stalled > facts.CONTENDED_SHARE, ()


def _share(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0:
        return None
    return min(1.0, (after - before) / seconds)
