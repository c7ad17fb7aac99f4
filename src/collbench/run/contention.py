"""Whether ranks waited for CPUs while they were timed: for other tasks, or for their control group's quota."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.bindings.spec import World, first_rank
from collbench.machine import facts
from collbench.machine.facts import Stretch

#: Share of time (in CPU seconds) that a quota may throttle a rank's groups before it counts as contention.
THROTTLED_SHARE = 0.01

#: Share of a program's cores that others may use while it runs.
OTHERS_SHARE = 0.02


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


def contended(
    stretch: Stretch, world: World, own: OwnTime = COMMUNICATES
) -> tuple[bool | None, tuple[str, ...]]:  # fmt: skip
    """Collective. Whether a rank waited for more than a small share of the time, and notes for the record.

    None where the kernel has no answer. A quota (`docker run --cpus`) is invisible to the ranks: they see every CPU,
    and are stopped for the rest of each period once it is used up. The kernel adds that up over the CPUs of the group,
    so that it can be more than the time itself. Threads of a program or of a library (gloo has several) wait for each
    other where they are more than cores: others than this process and its `own` programs must have used its cores too.
    """
    seconds, added = stretch.seconds, stretch.added
    nanoseconds = round(max(added.throttled.values(), default=0.0) * 1e9)
    _, (longest, disturbed) = world.extremes([nanoseconds, _disturbed(stretch, own)])
    worst = longest * 1e-9
    rank = first_rank(world, nanoseconds == longest)
    if seconds > 0 and worst > THROTTLED_SHARE * seconds:
        stopped = f"the group of rank {rank} was stopped for {worst:.3g} CPU seconds in {seconds:.3g} s"
        return True, (f"{stopped}: its CPU quota was used up",)
    if added.stalled is None or seconds <= 0:
        return None, ()
    return added.stalled / seconds > facts.CONTENDED_SHARE and bool(disturbed), ()


def _disturbed(stretch: Stretch, own: OwnTime) -> bool:
    """Whether others used the cores of this process for more than a small share of the time, as far as that is told.

    Others are other tasks, and other machines under the same hypervisor.
    """
    used = stretch.added.used
    if used is None:
        return True
    system = 0.0 if own.kernel else used.system - own.system
    others = max(used.user - own.user, 0.0) + max(system, 0.0) + used.steal
    return others > OTHERS_SHARE * stretch.seconds * used.cores
