"""Facts of all ranks, as rank 0 sees them, and as records and the manifest of a run have them.

Software, cores, GPUs and loaded libraries; and whether ranks waited for CPUs while they were timed: for other tasks, or
for their control group's quota.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

import collbench
from collbench import backends
from collbench.bindings.spec import Backend, Session, World, first_rank, gathered_once
from collbench.errors import BackendUnavailable
from collbench.machine import facts, launcher, nvml
from collbench.machine.facts import RankFacts, Stretch, format_cores, is_oversubscribed, machine_id, sha256_of
from collbench.run.binding import shared_core
from collbench.schema.manifest import Host, Library, Manifest, Protocol
from collbench.schema.plan import Plan
from collbench.schema.record import (
    UNREAD,
    WATCHED,
    Confinement,
    GpuState,
    Loaded,
    MachineRanks,
    Ranks,
    Reading,
    SlowRank,
    said,
)
from collbench.schema.samples import ALL_RANKS_LIMIT
from collbench.units import counted


class Parts(NamedTuple):
    """The facts of a rank, in parts that many ranks have in common, and `own`: the container and the GPU."""

    host: tuple[str, str, str]
    confinement: Confinement
    namespaces: tuple[tuple[str, int], ...]
    cores: tuple[frozenset[int], tuple[tuple[int, ...], ...]]
    own: tuple[str | None, str | None]


def parts_of(facts: RankFacts) -> Parts:
    """The namespaces apart from the rest of the confinement, which containers may have in common."""
    return Parts(
        host=(facts.host, facts.kernel_id, facts.clock_id),
        confinement=msgspec.structs.replace(facts.confinement, namespaces={}),
        namespaces=tuple(facts.confinement.namespaces.items()),
        cores=(facts.cores, facts.siblings),
        own=(facts.container, facts.gpu),
    )


def facts_of_all(world: World, facts: RankFacts) -> tuple[RankFacts, ...]:
    """The facts of all ranks, by rank, on rank 0; empty elsewhere. Collective.

    What ranks have in common is sent by one of them.
    """
    *common, own = parts_of(facts)
    gathered = [*(gathered_once(world, part) for part in common), world.gather(own)]
    if world.rank != 0:
        return ()
    return tuple(
        RankFacts(
            host, kernel_id, clock_id, cores, container,
            msgspec.structs.replace(confinement, namespaces=dict(namespaces)), gpu, siblings,
        )
        for (host, kernel_id, clock_id), confinement, namespaces, (cores, siblings), (container, gpu) in zip(
            *gathered, strict=True
        )
    )  # fmt: skip


def ranks_here(world: World, ranks: tuple[RankFacts, ...]) -> int:
    """How many ranks there are on this machine; `ranks` are known on rank 0. Collective."""
    numbers: dict[str, int] = world.bcast(dict(Counter(rank.kernel_id for rank in ranks)))
    return numbers.get(machine_id(), world.size)  # simulated ranks are on no machine


#: How many of the slowest ranks are named.
SLOWEST = 5


def ranks_of(p50: Sequence[float], facts: Sequence[RankFacts]) -> Ranks:
    """Of ranks with these medians (s) and facts, by rank."""
    if len(p50) > ALL_RANKS_LIMIT:
        return _of_many(p50, facts)
    gpus = tuple(rank.gpu for rank in facts)
    siblings = tuple(format_cores(cpu for threads in rank.siblings for cpu in threads) for rank in facts)
    return Ranks(
        p50=tuple(p50),
        binding=tuple(rank.binding for rank in facts),
        container=tuple(rank.container for rank in facts),
        gpu=gpus if any(gpus) else (),
        host=tuple(rank.host for rank in facts),
        siblings=siblings if any(siblings) else (),
    )


def _of_many(p50: Sequence[float], facts: Sequence[RankFacts]) -> Ranks:
    members: dict[str, list[int]] = {}
    for number, rank in enumerate(facts):
        members.setdefault(rank.kernel_id, []).append(number)
    medians = np.array(p50)
    slowest = np.argsort(-medians, kind="stable")[:SLOWEST].tolist()
    return Ranks(
        p50=(),
        binding=(),
        container=(),
        machines=tuple(
            MachineRanks(
                name=facts[ranks[0]].host,
                ranks=len(ranks),
                p50=tuple(np.quantile(medians[ranks], (0.0, 0.25, 0.5, 0.75, 1.0)).round(10).tolist()),
                gpus=len({facts[number].gpu for number in ranks} - {None}),
            )
            for ranks in members.values()
        ),
        slowest=tuple(SlowRank(rank=number, p50=round(p50[number], 10), host=facts[number].host) for number in slowest),
    )


#: What the kernel appends to the path of a file that was removed since.
_DELETED = " (deleted)"


def notes_on_loaded(world: World) -> tuple[str, ...]:
    """Collective: a note for each file that is asked for, on rank 0; none where nothing is asked for, and elsewhere.

    Asked again after each case, because a library may be loaded when it is first used.
    """
    names = tuple(filter(None, os.environ.get(WATCHED, "").split(",")))
    if not names:
        return ()
    by_rank = world.gather(loaded(names))
    if by_rank is None:
        return ()
    ranks: dict[Loaded, list[int]] = {}
    for rank, files in enumerate(by_rank):
        for file in files:
            ranks.setdefault(Loaded(*file), []).append(rank)
    return tuple(
        said(file, format_cores(numbers) if len(numbers) < world.size else "") for file, numbers in ranks.items()
    )


def loaded(names: tuple[str, ...], maps: Path = Path("/proc/self/maps")) -> tuple[Loaded, ...]:
    """The mapped files of this process whose names begin so; of a name without one, that there is none."""
    paths: dict[str, None] = {}
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            paths[words[5]] = None
    entries: list[Loaded] = []
    for name in names:
        versions = [path for path in paths if _is_version(path, name)]
        for path in versions:
            try:
                digest = sha256_of(path)  # of the file as it is
            except OSError:  # it cannot be read, or was removed since it was loaded
                digest = UNREAD
            entries.append(Loaded(name, path, digest))
        if not versions:
            entries.append(Loaded(name))
    return tuple(entries)


def _is_version(path: str, name: str) -> bool:
    """Whether a file is a version of this library: `libmpi.so` or `libmpi.so.40`, and not `libmpi.sock`."""
    rest = Path(path.removesuffix(_DELETED)).name.removeprefix(name)
    return rest == "" or (rest.startswith(".") and len(rest) < len(Path(path).name))


#: Most ranks that a note names.
MOST_NAMED = 64


def gpu_readings(session: Session) -> tuple[Reading, ...]:
    """The GPU of this rank now; empty where it has none, or NVML does not answer."""
    return () if session.gpu is None else nvml.readings((session.gpu.uuid,))


def gpu_states(before: tuple[Reading, ...], after: tuple[Reading, ...], world: World) -> tuple[GpuState, ...]:
    """Every GPU once on rank 0; empty elsewhere. Collective."""
    states = [GpuState(before=first, after=last) for first, last in zip(before, after, strict=False)]
    if first_rank(world, bool(states)) is None:
        return ()
    by_rank = world.gather(states) or []
    return tuple({state.before.uuid: state for states in by_rank for state in states}.values())


def cramped(ranks: Iterable[RankFacts]) -> tuple[str, ...]:
    """A note where a rank with a GPU may use only one core, which the library's own threads share with the call."""
    on_one_core = [str(number) for number, rank in enumerate(ranks) if rank.gpu is not None and len(rank.cores) == 1]
    if not on_one_core:
        return ()
    plural = "s" if len(on_one_core) > 1 else ""
    more = f" and {len(on_one_core) - MOST_NAMED} more" if len(on_one_core) > MOST_NAMED else ""
    note = "one core for the call and for the library's own threads; mpirun --bind-to none gives more"
    return (f"rank{plural} {', '.join(on_one_core[:MOST_NAMED])}{more}: {note}",)


def is_shared(ranks: Iterable[RankFacts]) -> bool:
    """Whether two ranks use one GPU."""
    gpus = [(rank.kernel_id, rank.gpu) for rank in ranks if rank.gpu is not None]
    return len(set(gpus)) < len(gpus)


def software(backend: Backend) -> tuple[tuple[str, str], ...]:
    """(name, version) of this program and of the libraries that move the data, in a form that any version reads.

    A library that cannot be used here is left out, as NCCL where a server has no GPU; and so is one of programs, which
    may use several of one name.
    """
    try:
        libraries = backend.libraries()
    except BackendUnavailable:
        libraries = ()
    return (
        ("collbench", collbench.__version__),
        *((library.name, library.version) for library in libraries if not library.used_by),
    )


def software_difference(ranks: list[tuple[tuple[str, str], ...]]) -> str | None:
    """The first rank with another version of something than an earlier rank. `ranks` are `software` by rank."""
    first: dict[str, tuple[int, str]] = {}
    for rank, versions in enumerate(ranks):
        for name, version in versions:
            first_rank, first_version = first.setdefault(name, (rank, version))
            if version != first_version:
                return f"rank {first_rank} has {name} {first_version}, rank {rank} has {version}"
    return None


def sharing(ranks: Sequence[RankFacts], rank: int) -> tuple[int, ...]:
    """The ranks of its machine that may use a core of this rank, itself among them."""
    shared = ranks[rank]
    return tuple(
        number
        for number, other in enumerate(ranks)
        if other.kernel_id == shared.kernel_id and other.physical & shared.physical
    )


def threads_of(ranks: Sequence[RankFacts], rank: int) -> int:
    """Its part of the cores that it shares, at least 1; all of its cores where a launcher bound it to its own."""
    return max(1, len(ranks[rank].physical) // len(sharing(ranks, rank)))


def siblings(ranks: Sequence[RankFacts]) -> tuple[str, ...]:
    """A note on the first two ranks whose processors differ and are hardware threads of one core."""
    owner: dict[tuple[str, int], int] = {}
    for number, rank in enumerate(ranks):
        for core in sorted(rank.physical):
            other = owner.setdefault((rank.kernel_id, core), number)
            if not rank.cores & ranks[other].cores:
                return (shared_core(other, number, core, rank),)
    return ()


def notes(ranks: Sequence[RankFacts]) -> tuple[str, ...]:
    """Cores that ranks share although there are enough for each: their launcher bound none of them."""
    shared: dict[tuple[int, ...], str] = {}
    if not is_oversubscribed(list(ranks)):
        for number, rank in enumerate(ranks):
            if len(group := sharing(ranks, number)) > 1:
                threads = counted(threads_of(ranks, number), "thread")
                shared.setdefault(group, f"cores {rank.binding}, because their launcher binds none: each has {threads}")
    return tuple(f"ranks {format_cores(group)} share {what} (threads=0)" for group, what in shared.items())


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
    seconds, added, used = stretch.seconds, stretch.added, stretch.added.used
    disturbed_here = True  # as far as the kernel tells
    if used is not None:  # others are other tasks, and other machines under the same hypervisor
        system = 0.0 if own.kernel else used.system - own.system
        others = max(used.user - own.user, 0.0) + max(system, 0.0) + used.steal
        disturbed_here = others > OTHERS_SHARE * seconds * used.cores
    nanoseconds = round(max(added.throttled.values(), default=0.0) * 1e9)
    _, (longest, disturbed) = world.minmax([nanoseconds, disturbed_here])
    worst = longest * 1e-9
    rank = first_rank(world, nanoseconds == longest)
    if seconds > 0 and worst > THROTTLED_SHARE * seconds:
        stopped = f"the group of rank {rank} was stopped for {worst:.3g} CPU seconds in {seconds:.3g} s"
        return True, (f"{stopped}: its CPU quota was used up",)
    if added.stalled is None or seconds <= 0:
        return None, ()
    return added.stalled / seconds > facts.CONTENDED_SHARE and bool(disturbed), ()


def manifest(
    plan: Plan,
    command: tuple[str, ...],
    measured: tuple[Backend, ...],
    session: Session,
    ranks: tuple[RankFacts, ...],
    gate: str,
    cadence: str,
) -> Manifest:
    """Collective: one rank of each machine describes it. What takes long is added by `completed`.

    Whole on rank 0, which has the facts of all `ranks`; without hosts and GPUs elsewhere.
    """
    gpus = tuple(rank.gpu for rank in ranks)
    libraries: dict[Library, None] = {}
    for backend in measured:
        with contextlib.suppress(BackendUnavailable):  # known only when it is started; then it has none
            libraries |= dict.fromkeys(backend.libraries())
    return manifest_of(
        plan,
        command,
        ranks=session.world.size,
        protocol=protocol(plan, gate, cadence),
        rank_gpus=gpus if any(gpus) else (),
        thread_level={"requested": plan["thread_level"], "granted": session.thread_level},
        launcher=launcher.detect().title,
        libraries=tuple(libraries),
        hosts=_hosts(session, ranks),
        environment={},
        simulated=any(backend.simulated for backend in measured),
    )


def manifest_of(plan: Plan, command: tuple[str, ...], **fields: Any) -> Manifest:
    """The manifest of a run that begins now, of one world or of many; `fields` are those in which these differ."""
    return Manifest(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        collbench=collbench.__version__,
        python=sys.version.split()[0],
        command=tuple(facts.printable(word) for word in command),
        title=plan.title,
        plan=plan.document,
        **fields,
    )


def completed(manifest: Manifest) -> Manifest:
    """With the environment, package versions and the SHA-256 of every library file: looked up when a run is kept.

    All backends are asked what matters to them, used or not: comparisons must see what differs between two runs.
    """
    libraries = tuple(hashed(library) for library in manifest.libraries)
    environment = facts.environment(backends.variables())
    return msgspec.structs.replace(manifest, libraries=libraries, packages=packages(), environment=environment)


def hashed(library: Library) -> Library:
    """The library with the SHA-256 of its file."""
    if library.path is None:
        return library
    try:
        return msgspec.structs.replace(library, sha256=sha256_of(library.path))
    except OSError:
        return library


def protocol(plan: Plan, gate: str, cadence: str) -> Protocol:
    """How a plan measures. Gate and cadence are those at the start: a gate may change."""
    return Protocol(
        gate=gate,
        cadence=cadence,
        burst=plan.burst if cadence == "streaming" else 1,
        warmup=plan.warmup,
        check=plan.check,
        iters=plan.iters,
        budget=plan.budget_seconds,
        floor=plan.floor,
        cap=plan.cap,
        timeout=plan.timeout_seconds,
    )


def packages() -> dict[str, str]:
    """By name, the versions of the packages that matter to any backend, where they are installed."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in sorted({"numpy", *backends.packages()}):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _hosts(session: Session, ranks: tuple[RankFacts, ...]) -> tuple[Host, ...]:
    """One entry per machine and hostname; containers on one machine have entries of their own. Empty but on rank 0.

    Of a large world one entry per machine, by the hostname of its first rank.
    """
    world, each = session.world, len(ranks) <= ALL_RANKS_LIMIT
    members: dict[tuple[str, str], list[int]] = {}
    for number, rank in enumerate(ranks):
        members.setdefault((rank.host if each else "", rank.kernel_id), []).append(number)
    readers: frozenset[int] = world.bcast(frozenset(numbers[0] for numbers in members.values()))
    hosts = world.gather(facts.host() if world.rank in readers else None)
    gpus = world.gather(session.gpu)
    if hosts is None or gpus is None:
        return ()
    return tuple(
        msgspec.structs.replace(
            hosts[numbers[0]],
            ranks=tuple(numbers),
            gpus=tuple({gpu.uuid: gpu for number in numbers if (gpu := gpus[number]) is not None}.values()),
        )
        for numbers in members.values()
    )
