"""Check `cores`: cores and their quota against ranks, and the binding of this rank."""

from __future__ import annotations

from collbench.doctor.parts.finding import Check, Finding, Problem, found
from collbench.doctor.parts.machine import Machine
from collbench.doctor.parts.processors import allowed, launcher_cores, online, physical
from collbench.machine.cgroup import cpu_quota
from collbench.machine.facts import format_cores

_BIND = {
    "openmpi": "mpirun --bind-to core -n {ranks} collbench ...",
    "mpich": "mpiexec -bind-to core -n {ranks} collbench ...",
    "slurm": "srun --cpu-bind=cores -n {ranks} collbench ...",
}


def run(machine: Machine) -> Finding:
    """What this process may use, and what its launcher made of it."""
    mine = allowed(machine)
    grant = cpu_quota(machine.root)
    limit = "no quota" if grant is None else f"quota {grant:g}"
    if machine.ranks is None:
        seen = f"{len(mine)} of {len(online(machine))} usable ({format_cores(mine)}), {limit}; no launcher: one rank"
        return found(seen, _throttled(machine, grant, mine, 1), _single(machine, mine))
    ours = launcher_cores(machine)
    # Without a launcher in sight (its process may be outside this container) only what must be true is said.
    shared = mine | ours if ours is not None else mine | online(machine)
    seen = (
        f"{machine.ranks} ranks on {len(shared)} cores ({format_cores(shared)}), {limit}; "
        f"rank {machine.launcher.rank} bound to {format_cores(mine)}"
    )
    crowd = _crowded(machine.ranks, shared)
    threads = None if crowd else _sharing(machine, machine.ranks, shared)
    unbound = None if crowd else _unbound(machine, machine.ranks, mine, shared)
    return found(seen, _throttled(machine, grant, shared, machine.ranks), crowd, threads, unbound)


def _single(machine: Machine, mine: frozenset[int]) -> Problem | None:
    if len(mine) > 1:
        return None
    everyone = online(machine)
    fix = f"taskset -cp {format_cores(everyone)} $$"
    if len(everyone) == 1:
        fix = "a machine, or a virtual one, with a core for each rank"
    elif machine.container is not None:
        fix = f"docker run --cpuset-cpus={format_cores(everyone)} ..."
    return Problem(
        "warn",
        f"this process may use one core ({format_cores(mine)})",
        "two ranks would take turns on it: times are those of the scheduler, not of the library",
        fix,
    )


def _crowded(ranks: int, shared: frozenset[int]) -> Problem | None:
    if ranks <= len(shared):
        return None
    return Problem(
        "warn",
        f"{ranks} ranks, {len(shared)} cores",
        "ranks wait for a core, not for data: small operations take 100 us and more instead of less than 1 us, "
        "and records are marked oversubscribed",
        f"mpirun -n {len(shared)} collbench ..., or a machine with {ranks} cores",
    )


def _throttled(machine: Machine, grant: float | None, cores: frozenset[int], ranks: int) -> Problem | None:
    if grant is None or grant >= len(cores):
        return None
    fix = f"systemctl set-property UNIT CPUQuota= AllowedCPUs={format_cores(cores)}"
    if machine.container is not None:
        fix = f"docker run --cpuset-cpus={format_cores(cores)} ... instead of --cpus"
    return Problem(
        "warn",
        f"the cgroup grants the time of {grant:g} cores, on a set of {len(cores)}"
        + (f", to {ranks} ranks that spin" if ranks > grant else ""),
        "once it is spent, every rank stands still for the rest of the period (up to 100 ms), which shows in p99 and "
        "max; nproc does not show the quota",
        fix,
    )


def _sharing(machine: Machine, ranks: int, shared: frozenset[int]) -> Problem | None:
    count = physical(machine, shared)
    if ranks <= count:
        return None
    return Problem(
        "warn",
        f"{ranks} ranks on {count} physical cores: the {len(shared)} cores above are hardware threads",
        "two ranks share one core's execution units and caches: copies and reductions slow each other down",
        f"mpirun -n {count} collbench ...",
    )


def _unbound(machine: Machine, ranks: int, mine: frozenset[int], shared: frozenset[int]) -> Problem | None:
    if ranks < 2 or len(mine) == 1 or mine != shared:
        return None
    bind = _BIND.get(machine.launcher.kind, "mpirun --bind-to core -n {ranks} collbench ...")
    return Problem(
        "warn",
        f"rank {machine.launcher.rank} may run on every core ({format_cores(mine)}): it is not bound",
        "the kernel moves ranks between cores while they are timed: launches differ more, p99 and max grow",
        bind.format(ranks=ranks),
    )


CHECK = Check("cores", "a core for each rank, no quota below them, ranks bound", run)
