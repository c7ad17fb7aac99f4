"""Check `cores`: cores and their quota against ranks, and the binding of this rank."""

from __future__ import annotations

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine, allowed, launcher_cores, online, physical
from collbench.machine.cgroup import cpu_quota
from collbench.machine.facts import format_cores

_BIND = {
    "openmpi": "mpirun --bind-to core -n {ranks} collbench ...",
    "mpich": "mpiexec -bind-to core -n {ranks} collbench ...",
    "slurm": "srun --cpu-bind=cores -n {ranks} collbench ...",
}


def run(machine: Machine) -> Finding:
    """The cores that this process and its launcher may use, against the ranks."""
    own = allowed(machine)
    quota = cpu_quota(machine.root)
    limit = "no quota" if quota is None else f"quota {quota:g}"
    if machine.ranks is None:
        seen = f"{len(own)} of {len(online(machine))} usable ({format_cores(own)}), {limit}; no launcher: one rank"
        return found(seen, _throttled(machine, quota, own, 1), _single(machine, own))
    of_launcher = launcher_cores(machine)
    # The launcher may be outside this container and not visible: then its ranks may have all cores.
    shared = own | (online(machine) if of_launcher is None else of_launcher)
    seen = (
        f"{machine.ranks} ranks on {len(shared)} cores ({format_cores(shared)}), {limit}; "
        f"rank {machine.launcher.rank} bound to {format_cores(own)}"
    )
    crowded = _crowded(machine.ranks, shared)
    threads = None if crowded else _sharing(machine, machine.ranks, shared)
    unbound = None if crowded else _unbound(machine, machine.ranks, own, shared)
    return found(seen, _throttled(machine, quota, shared, machine.ranks), crowded, threads, unbound)


def _single(machine: Machine, own: frozenset[int]) -> Problem | None:
    if len(own) > 1:
        return None
    present = online(machine)
    fix = f"taskset -cp {format_cores(present)} $$"
    if len(present) == 1:
        fix = "use a machine with a core for each rank"
    elif machine.container is not None:
        fix = f"docker run --cpuset-cpus={format_cores(present)} ..."
    cause = f"this process may use one core ({format_cores(own)})"
    effect = "two ranks would take turns on it: times would be those of the scheduler, not of the library"
    return Problem("warn", cause, effect, fix)


def _crowded(ranks: int, shared: frozenset[int]) -> Problem | None:
    if ranks <= len(shared):
        return None
    return Problem(
        "warn",
        f"{ranks} ranks, {len(shared)} cores",
        "ranks wait for a core, not for data: small operations take 100 us and more instead of less than 1 us",
        f"mpirun -n {len(shared)} collbench ..., or use a machine with {ranks} cores",
    )


def _throttled(machine: Machine, quota: float | None, cores: frozenset[int], ranks: int) -> Problem | None:
    if quota is None or quota >= len(cores):
        return None
    fix = f"systemctl set-property UNIT CPUQuota= AllowedCPUs={format_cores(cores)}"
    if machine.container is not None:
        fix = f"docker run --cpuset-cpus={format_cores(cores)} ... instead of --cpus"
    spinning = f", to {ranks} ranks that spin" if ranks > quota else ""
    return Problem(
        "warn",
        f"the cgroup grants the time of {quota:g} cores, on a set of {len(cores)}{spinning}",
        "once it is spent, every rank is stopped for the rest of the period (up to 100 ms), which raises p99 and max",
        fix,
    )


def _sharing(machine: Machine, ranks: int, shared: frozenset[int]) -> Problem | None:
    count = physical(machine, shared)
    if ranks <= count:
        return None
    cause = f"{ranks} ranks on {count} physical cores: the {len(shared)} cores above are hardware threads"
    effect = "two ranks share one core's execution units and caches: copies and reductions slow each other down"
    fix = f"mpirun -n {count} collbench ..."
    return Problem("warn", cause, effect, fix)


def _unbound(machine: Machine, ranks: int, own: frozenset[int], shared: frozenset[int]) -> Problem | None:
    if ranks < 2 or len(own) == 1 or own != shared:
        return None
    bind = _BIND.get(machine.launcher.kind, "mpirun --bind-to core -n {ranks} collbench ...")
    cause = f"rank {machine.launcher.rank} may run on every core ({format_cores(own)}): it is not bound"
    effect = "the kernel moves ranks between cores while they are timed: launches differ more, p99 and max rise"
    fix = bind.format(ranks=ranks)
    return Problem("warn", cause, effect, fix)
