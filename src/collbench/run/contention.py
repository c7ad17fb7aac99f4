"""Whether ranks waited for CPUs while they were timed: for other tasks, or for their control group's quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collbench.bindings.agreement import first_rank
from collbench.bindings.spec import World
from collbench.machine import cgroup, facts
from collbench.machine.facts import CoreTimes

#: Share of time (in CPU seconds) that a quota may throttle a rank's groups before it counts as contention.
THROTTLED_SHARE = 0.01

#: Share of a program's cores that others may use while it runs.
OTHERS_SHARE = 0.02


@dataclass(frozen=True)
class Waited:
    """Seconds since boot that tasks of this machine waited for a CPU; by control group, CPU seconds of throttling.

    `used` is what the cores of this process were used for.
    """

    stalled: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    used: CoreTimes | None = None


@dataclass(frozen=True)
class OwnTime:
    """Processor seconds of programs that a rank started: taken off the use of its cores, so that the rest is others'.

    `kernel`: the kernel writes files or passes messages for them in time that counts as nobody's, so the time of their
    cores in the kernel says nothing about others.
    """

    user: float = 0.0
    system: float = 0.0
    kernel: bool = False


#: Of ranks that communicate themselves.
COMMUNICATES = OwnTime(kernel=True)


def now() -> Waited:
    return Waited(facts.cpu_stall_seconds(), cgroup.throttled_seconds(), facts.core_times())


def since(
    before: Waited, seconds: float, world: World, own: OwnTime = COMMUNICATES
) -> tuple[bool | None, tuple[str, ...]]:
    """Collective. Whether a rank waited for more than a small share of `seconds`, and notes for the record.

    None where the kernel has no answer. A quota (`docker run --cpus`) is invisible to the ranks: they see every CPU,
    and are stopped for the rest of each period once it is used up. The kernel adds that up over the CPUs of the group,
    so that it can be more than the time itself. Threads of a program or of a library (gloo has several) wait for each
    other where they are more than cores: others than this process and its `own` programs must have used its cores too.
    """
    after = now()
    groups = after.throttled.keys() & before.throttled
    throttled = max((after.throttled[group] - before.throttled[group] for group in groups), default=0.0)
    nanoseconds = round(throttled * 1e9)
    _, (longest, disturbed) = world.extremes([nanoseconds, _disturbed(before, after, seconds, own)])
    worst = longest * 1e-9
    rank = first_rank(world, nanoseconds == longest)
    if seconds > 0 and worst > THROTTLED_SHARE * seconds:
        stopped = f"the group of rank {rank} was stopped for {worst:.3g} CPU seconds in {seconds:.3g} s"
        return True, (f"{stopped}: its CPU quota was used up",)
    if before.stalled is None or after.stalled is None or seconds <= 0:
        return None, ()
    waited = (after.stalled - before.stalled) / seconds > facts.CONTENDED_SHARE
    return waited and bool(disturbed), ()


def _disturbed(before: Waited, after: Waited, seconds: float, own: OwnTime) -> bool:
    """Whether others used the cores of this process for more than a small share of the time, as far as that is told."""
    was, now_ = before.used, after.used
    if was is None or now_ is None:
        return True
    user = now_.user - was.user - own.user
    system = 0.0 if own.kernel else now_.system - was.system - own.system
    others = max(user, 0.0) + max(system, 0.0) + now_.steal - was.steal  # tasks, and machines under this hypervisor
    return others > OTHERS_SHARE * seconds * now_.cores
