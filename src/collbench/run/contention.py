"""Whether ranks waited for CPUs while they were timed: for other tasks, or for their control group's quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collbench.bindings.spec import World, allgather
from collbench.machine import cgroup, facts

#: Share of time (in CPU seconds) that a quota may throttle a rank's groups before it counts as contention.
THROTTLED_SHARE = 0.01


@dataclass(frozen=True)
class Waited:
    """Seconds since boot that tasks of this machine waited for a CPU; by control group, CPU seconds of throttling."""

    stalled: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)


def now() -> Waited:
    return Waited(facts.cpu_stall_seconds(), cgroup.throttled_seconds())


def since(before: Waited, seconds: float, world: World) -> tuple[bool | None, tuple[str, ...]]:
    """Collective. Whether a rank waited for more than a small share of `seconds`, and notes for the record.

    None where the kernel has no answer. A quota (`docker run --cpus`) is invisible to the ranks: they see every CPU,
    and are stopped for the rest of each period once it is used up. The kernel adds that up over the CPUs of the group,
    so that it can be more than the time itself.
    """
    after = now()
    groups = after.throttled.keys() & before.throttled
    throttled = max((after.throttled[group] - before.throttled[group] for group in groups), default=0.0)
    by_rank = allgather(world, throttled)
    worst = max(by_rank)
    if seconds > 0 and worst > THROTTLED_SHARE * seconds:
        stopped = f"the group of rank {by_rank.index(worst)} was stopped for {worst:.3g} CPU seconds in {seconds:.3g} s"
        return True, (f"{stopped}: its CPU quota was used up",)
    if before.stalled is None or after.stalled is None or seconds <= 0:
        return None, ()
    return (after.stalled - before.stalled) / seconds > facts.CONTENDED_SHARE, ()
