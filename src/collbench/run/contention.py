"""Whether ranks waited for processors while they were timed: for other tasks, or for their control group's quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collbench.bindings.spec import World, allgather
from collbench.machine import cgroup, facts

#: CPU seconds a second that a quota may stop a rank's groups before it counts: it is never stopped by accident.
THROTTLED_SHARE = 0.01


@dataclass(frozen=True)
class Waited:
    """Seconds since boot: of this machine's tasks for a CPU; by group of this process, CPU seconds for its quota."""

    stalled: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)


def now() -> Waited:
    """What the kernel tells."""
    return Waited(facts.cpu_stall_seconds(), cgroup.throttled_seconds())


def since(before: Waited, seconds: float, world: World) -> tuple[bool | None, tuple[str, ...]]:
    """Collective. Whether a rank was held up for more than a small share of `seconds`, and what a reader must know.

    None where the kernel does not tell. A quota (`docker run --cpus`) is invisible to the ranks: they see every
    processor, and are stopped for the rest of each period once it is used up. The kernel counts that for every
    processor of the group, so that it can be more than the time itself.
    """
    after = now()
    grown = (after.throttled[group] - before.throttled[group] for group in after.throttled.keys() & before.throttled)
    held = allgather(world, max(grown, default=0.0))
    worst = max(held)
    if seconds > 0 and worst > THROTTLED_SHARE * seconds:
        which = f"the group of rank {held.index(worst)} was stopped for {worst:.3g} CPU seconds in {seconds:.3g} s"
        return True, (f"{which}: its CPU quota was used up",)
    if before.stalled is None or after.stalled is None or seconds <= 0:
        return None, ()
    return (after.stalled - before.stalled) / seconds > facts.CONTENDED_SHARE, ()
