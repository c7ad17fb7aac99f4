"""Facts of all ranks: compared with the places planned for them, and as records and the manifest of a run have them.

A launcher plans places, one for each rank. Where a resource manager starts the ranks, a shape of its hosts is planned.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

import collbench
from collbench import backends
from collbench.bindings.spec import Backend, Session, World, first_rank, gathered_once
from collbench.errors import BackendUnavailable, WorldMismatch
from collbench.machine import facts, launcher, nvml
from collbench.machine.facts import RankFacts, Stretch, machine_id, sha256_of
from collbench.schema.manifest import Host, Library, Manifest, Protocol
from collbench.schema.plan import Plan
from collbench.schema.record import (
    UNREAD,
    WATCHED,
    GpuState,
    Loaded,
    MachineRanks,
    Ranks,
    Reading,
    SlowRank,
    loaded_note,
)
from collbench.schema.samples import ALL_RANKS_LIMIT
from collbench.schema.world import GPU, Place, Shape, shapes
from collbench.units import counted, format_spans, parse_spans

KeyT = TypeVar("KeyT", bound=Hashable)


def by_key(keys: Iterable[KeyT]) -> dict[KeyT, list[int]]:
    """The numbers of the ranks that have a key, by key; `keys` are those of all ranks."""
    numbers: dict[KeyT, list[int]] = {}
    for rank, key in enumerate(keys):
        numbers.setdefault(key, []).append(rank)
    return numbers


def parts_of(facts: RankFacts) -> tuple[Any, ...]:
    """What many ranks have in common, in four parts, and the rank's container and GPU.

    The namespaces apart from the rest of the confinement, which containers may have in common.
    """
    return (
        (facts.host, facts.kernel_id, facts.clock_id),
        msgspec.structs.replace(facts.confinement, namespaces={}),
        tuple(facts.confinement.namespaces.items()),
        (facts.cores, facts.siblings),
        (facts.container, facts.gpu),
    )


def facts_of_all(world: World, facts: RankFacts) -> tuple[RankFacts, ...]:
    """The facts of all ranks, by rank, on rank 0; empty elsewhere. Collective.

    What ranks have in common is sent by one of them.
    """
    *common, place = parts_of(facts)
    gathered = [*(gathered_once(world, part) for part in common), world.gather(place)]
    if world.rank != 0:
        return ()
    facts_by_rank = []
    for (host, kernel, clock), confined, namespaces, (cores, siblings), (container, gpu) in zip(*gathered, strict=True):
        confinement = msgspec.structs.replace(confined, namespaces=dict(namespaces))
        facts_by_rank.append(RankFacts(host, kernel, clock, cores, container, confinement, gpu, siblings))
    return tuple(facts_by_rank)


def ranks_here(world: World, ranks: tuple[RankFacts, ...]) -> int:
    """How many ranks there are on this machine; `ranks` are known on rank 0. Collective."""
    numbers: dict[str, int] = world.bcast(dict(Counter(rank.kernel_id for rank in ranks)))
    return numbers.get(machine_id(), world.size)  # simulated ranks are on no machine


# Places planned for ranks ---------------------------------------------------------------------------------------------

#: Ranks of a world, each with its number.
Numbered = Sequence[tuple[int, RankFacts]]


def bind(places: Sequence[Place] | None = None, environ: MutableMapping[str, str] = os.environ) -> None:
    """Restrict this process to the cores planned for its rank; programs that it starts find its GPU in `environ`.

    `places` are by rank; None: the environment has a shape, or nothing was planned. WorldMismatch: it may not use them.
    """
    if places is None:
        if planned := shapes(environ):
            bind_to_shape(planned, environ)
        return
    rank = launcher.detect(environ).rank
    if rank >= len(places):
        return
    try:
        os.sched_setaffinity(0, parse_spans(places[rank].cores))
    except (OSError, ValueError) as error:
        usable = format_spans(os.sched_getaffinity(0))
        raise WorldMismatch(f"rank {rank} was to run on cores {places[rank].cores}, and may use {usable}.") from error
    environ[GPU] = places[rank].gpu or ""


def bind_to_shape(shapes: Sequence[Shape], environ: Mapping[str, str] = os.environ) -> None:
    """Restrict this process to as many cores as planned: a part of its own where it may use those of other ranks too.

    Raises:
        WorldMismatch: it may use fewer; or the resource manager and its PMI disagree on its rank.
    """
    us = launcher.detect(environ)
    if (differs := launcher.contradiction(environ)) is not None:
        raise WorldMismatch(differs)
    ends, usable = accumulate(shape.ranks for shape in shapes), os.sched_getaffinity(0)
    of_rank = (shape for shape, end in zip(shapes, ends, strict=True) if us.rank < end)
    planned = next(of_rank, shapes[-1])  # of a rank too many the last, until all compare their number
    if len(usable) < planned.cores:
        cores = counted(planned.cores, "core")
        raise WorldMismatch(f"rank {us.rank} was to have {cores}, and may use {format_spans(usable)}.")
    together = planned.boxes if isinstance(planned.boxes, int) else planned.each
    sharing = together if len(usable) >= together * planned.cores else 1
    first = us.local_rank * planned.cores if sharing > 1 else 0
    if planned.crowded:
        first = us.local_rank * planned.cores % len(usable)
    threads = {cpu: facts.thread_siblings(cpu) for cpu in usable}
    first_threads = {min(usable.intersection(of_core)) for of_core in threads.values()}
    ordered = sorted(usable, key=lambda cpu: (threads[cpu], cpu))
    if len(first_threads) >= sharing * planned.cores:  # one hardware thread of each core before the others
        ordered = [*sorted(first_threads), *sorted(usable - first_threads)]
    os.sched_setaffinity(0, [ordered[(first + i) % len(ordered)] for i in range(planned.cores)])


def place_difference(
    ranks: tuple[RankFacts, ...], places: Sequence[Place] | None = None, environ: Mapping[str, str] = os.environ
) -> str | None:
    """How the world differs from the plan: in size, or in a rank's container, cores or GPU. None where it does not."""
    if places is None:
        planned = shapes(environ)
        return shape_difference(planned, ranks) if planned else None
    if len(places) != len(ranks):
        return f"{len(places)} ranks were planned and {len(ranks)} met"
    for number, (at, rank) in enumerate(zip(places, ranks, strict=True)):
        if at.container != rank.container:
            expected, actual = at.container or "no container", rank.container or "no container"
            return f"rank {number} was planned in {expected}, and is in {actual}"
        if parse_spans(at.cores) != rank.cores:
            return f"rank {number} was planned on cores {at.cores}, and may use {rank.binding}"
        if rank.gpu not in (None, at.gpu):
            return f"rank {number} was planned on GPU {at.gpu or '(none)'}, and uses {rank.gpu}"
    return None


def shape_difference(shapes: Sequence[Shape], ranks: Sequence[RankFacts]) -> str | None:
    """The first difference between shapes and where the ranks of a world are, in words; None: there is none."""
    planned = sum(shape.ranks for shape in shapes)
    if len(ranks) != planned:
        return f"{counted(planned, 'rank')} were planned, and {len(ranks)} met"
    numbered, owner = iter(enumerate(ranks)), dict[tuple[str, str], tuple[int, int]]()
    shared: str | None = None
    for part, shape in enumerate(shapes):
        members = tuple(islice(numbered, shape.ranks))
        who = "the ranks" if len(shapes) == 1 else f"ranks {members[0][0]} to {members[-1][0]}"
        differs = _hosts_differ(shape, members, who) or _cores_differ(shape, members) or _boxes_differ(shape, members)
        if differs:
            return differs
        for number, rank in members:
            other, whose = owner.setdefault(_machine(rank), (number, part))
            if whose != part and shared is None:
                shared = f"ranks {other} and {number} were planned on different hosts, and both are on {rank.host}"
    return _shared_gpu(ranks) or shared


def _machine(rank: RankFacts) -> tuple[str, str]:
    """Its name, and what tells two of one name apart."""
    return rank.host, rank.kernel_id


def _hosts_differ(planned: Shape, ranks: Numbered, who: str) -> str | None:
    hosts = Counter(_machine(rank) for _, rank in ranks)
    if len(hosts) != planned.hosts:
        names = ", ".join(sorted(name for name, _ in hosts)[:4])
        return f"{counted(planned.hosts, 'host')} were planned, and {who} are on {len(hosts)} ({names})"
    for (name, _), number in hosts.items():
        if number != planned.each:
            return f"{counted(planned.each, 'rank')} were planned on each host, and {name} has {number}"
    return None


def _cores_differ(planned: Shape, ranks: Numbered) -> str | None:
    owner: dict[tuple[tuple[str, str], int], int] = {}
    for number, rank in ranks:
        if len(rank.cores) != planned.cores:
            return f"rank {number} was to have {counted(planned.cores, 'core')}, and may use {rank.binding}"
        for core in () if planned.crowded else sorted(rank.physical):
            other = owner.setdefault((_machine(rank), core), number)
            if other != number:
                return shared_core(other, number, core, rank)
    return None


def _boxes_differ(planned: Shape, ranks: Numbered) -> str | None:
    """By the mount namespaces, which every container has of its own."""
    together = planned.boxes if isinstance(planned.boxes, int) else 1 if planned.boxes == "rank" else planned.each
    where = {1: "each in a container of its own", planned.each: "in one place"}
    was = where.get(together, f"{together} to a container")
    for positions in by_key(_machine(rank) for _, rank in ranks).values():
        members = [ranks[position] for position in positions]
        namespaces = {rank.confinement.namespaces.get("mnt") for _, rank in members}
        if len(namespaces) != -(-len(members) // together):
            those = f"ranks {members[0][0]} to {members[-1][0]} of a host"
            return f"{those} were planned {was}, and are in {counted(len(namespaces), 'mount namespace')}"
    return None


def _shared_gpu(ranks: Sequence[RankFacts]) -> str | None:
    owner: dict[str, int] = {}
    for number, rank in enumerate(ranks):
        if rank.gpu is not None and owner.setdefault(rank.gpu, number) != number:
            return f"ranks {owner[rank.gpu]} and {number} share GPU {rank.gpu}"
    return None


def shared_core(first: int, second: int, core: int, facts: RankFacts) -> str:
    """`ranks 0 and 1 share core 0 (threads 0, 1) of c01`; `facts` are of either rank."""
    threads = facts.threads_of(core)
    which = f" (threads {', '.join(map(str, threads))})" if len(threads) > 1 else ""
    return f"ranks {first} and {second} share core {core}{which} of {facts.host}"


# What records say of ranks --------------------------------------------------------------------------------------------

#: How many of the slowest ranks are named.
SLOWEST = 5


def ranks_of(p50: Sequence[float], facts: Sequence[RankFacts]) -> Ranks:
    """Of ranks with these medians (s) and facts, by rank."""
    if len(p50) > ALL_RANKS_LIMIT:
        return _of_many(p50, facts)
    gpus = tuple(rank.gpu for rank in facts)
    siblings = tuple(format_spans(cpu for threads in rank.siblings for cpu in threads) for rank in facts)
    return Ranks(
        p50=tuple(p50), gpu=gpus if any(gpus) else (), siblings=siblings if any(siblings) else (),
        binding=tuple(rank.binding for rank in facts), container=tuple(rank.container for rank in facts),
        host=tuple(rank.host for rank in facts),
    )  # fmt: skip


def _of_many(p50: Sequence[float], facts: Sequence[RankFacts]) -> Ranks:
    medians = np.array(p50)
    slowest = np.argsort(-medians, kind="stable")[:SLOWEST].tolist()
    return Ranks(
        p50=(), binding=(), container=(),
        machines=tuple(
            MachineRanks(
                name=facts[ranks[0]].host, ranks=len(ranks),
                p50=tuple(np.quantile(medians[ranks], (0.0, 0.25, 0.5, 0.75, 1.0)).round(10).tolist()),
                gpus=len({facts[number].gpu for number in ranks} - {None}),
            )
            for ranks in by_key(rank.kernel_id for rank in facts).values()
        ),
        slowest=tuple(SlowRank(rank=number, p50=round(p50[number], 10), host=facts[number].host) for number in slowest),
    )  # fmt: skip


#: What the kernel appends to the path of a file that was removed since.
_DELETED = " (deleted)"


def notes_on_loaded(world: World) -> tuple[str, ...]:
    """On rank 0 a note for each file that `WATCHED` names. Collective.

    Asked after each case, because a library may be loaded when it is first used.
    """
    if not (names := tuple(filter(None, os.environ.get(WATCHED, "").split(",")))):
        return ()
    ranks: dict[Loaded, list[int]] = {}
    for rank, files in enumerate(world.gather(loaded(names)) or ()):
        for file in files:
            ranks.setdefault(Loaded(*file), []).append(rank)
    return tuple(
        loaded_note(file, format_spans(numbers) if len(numbers) < world.size else "") for file, numbers in ranks.items()
    )


def loaded(names: tuple[str, ...], maps: Path = Path("/proc/self/maps")) -> tuple[Loaded, ...]:
    """The mapped files of this process whose names begin so; of a name without one, that there is none."""
    lines = (line.split(maxsplit=5) for line in maps.read_text(encoding="utf-8", errors="replace").splitlines())
    paths = dict.fromkeys(words[5] for words in lines if len(words) == 6 and words[5].startswith("/"))
    entries: list[Loaded] = []
    for name in names:
        versions = [path for path in paths if _is_version(path, name)]
        for path in versions:
            digest = UNREAD
            with contextlib.suppress(OSError):  # it cannot be read, or was removed since it was loaded
                digest = sha256_of(path)  # of the file as it is
            entries.append(Loaded(name, path, digest))
        if not versions:
            entries.append(Loaded(name))
    return tuple(entries)


def _is_version(path: str, name: str) -> bool:
    """Whether a file is a version of this library: `libmpi.so` or `libmpi.so.40`, and not `libmpi.sock`."""
    rest = Path(path.removesuffix(_DELETED)).name.removeprefix(name)
    return rest == "" or (rest.startswith(".") and len(rest) < len(Path(path).name))


#: Most ranks that a note or a reason names.
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
    more = f" and {len(on_one_core) - MOST_NAMED} more" if len(on_one_core) > MOST_NAMED else ""
    those = f"rank{'s' if len(on_one_core) > 1 else ''} {', '.join(on_one_core[:MOST_NAMED])}{more}"
    return (f"{those}: one core for the call and for the library's own threads; mpirun --bind-to none gives more",)


def is_shared(ranks: Iterable[RankFacts]) -> bool:
    """Whether two ranks use one GPU."""
    gpus = [(rank.kernel_id, rank.gpu) for rank in ranks if rank.gpu is not None]
    return len(set(gpus)) < len(gpus)


def software(backend: Backend) -> tuple[tuple[str, str], ...]:
    """(name, version) of this program and of the libraries that move the data, in a form that any version reads.

    Without a library that cannot be used here, and without those of programs, which may use several of one name.
    """
    libraries: tuple[Library, ...] = ()
    with contextlib.suppress(BackendUnavailable):
        libraries = backend.libraries()
    versions = ((library.name, library.version) for library in libraries if not library.used_by)
    return (("collbench", collbench.__version__), *versions)


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
    here, cores = ranks[rank].kernel_id, ranks[rank].physical
    return tuple(number for number, other in enumerate(ranks) if other.kernel_id == here and other.physical & cores)


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
    if not facts.is_oversubscribed(list(ranks)):
        for number, rank in enumerate(ranks):
            if len(group := sharing(ranks, number)) > 1:
                threads = counted(threads_of(ranks, number), "thread")
                shared.setdefault(group, f"cores {rank.binding}, because their launcher binds none: each has {threads}")
    return tuple(f"ranks {format_spans(group)} share {what} (threads=0)" for group, what in shared.items())


#: Share of time (in CPU seconds) that a quota may throttle a rank's groups before it counts as contention.
THROTTLED_SHARE = 0.01

#: Share of a program's cores that others may use while it runs: no more than the usual margin of a comparison. It
#: decides for programs with more threads than cores, which wait for each other all the time; others need as much to
#: make any other program wait for `facts.CONTENDED_SHARE`.
OTHERS_SHARE = 0.05


@dataclass(frozen=True)
class OwnTime:
    """Processor seconds of programs that a rank started: taken off the use of its cores, so that the rest is others'.

    `kernel`: the kernel writes files or passes messages for them in time that counts as nobody's, so the time of their
    cores in the kernel says nothing about others.
    """

    user: float = 0.0
    system: float = 0.0
    kernel: bool = False


def own_time(
    ranks: Sequence[RankFacts], rank: int, used: Sequence[tuple[tuple[float, float], tuple[float, float]]], kernel: bool
) -> OwnTime:
    """What ranks that share a core with a rank used: of each its program's user and system time, and its process's own.

    Its own process is no part of what it finds used (`core_times`).
    """
    group = sharing(ranks, rank)
    times = [used[one][0] for one in group] + [used[one][1] for one in group if one != rank]
    return OwnTime(sum(user for user, _ in times), sum(system for _, system in times), kernel)


#: Of ranks that communicate themselves.
COMMUNICATES = OwnTime(kernel=True)


def contended(stretch: Stretch, world: World, own_time: OwnTime = COMMUNICATES) -> tuple[bool | None, tuple[str, ...]]:
    """Whether a rank waited for CPUs for more than a small share of the time, and notes for the record. Collective.

    None where the kernel has no answer. A quota (`docker run --cpus`) is invisible to the ranks: they see every CPU,
    and are stopped for the rest of each period once it is used up. The kernel adds that up over the CPUs of the group,
    so that it can be more than the time itself. Threads of a program or of a library (gloo has several) wait for each
    other where they are more than cores: others than this process and its programs (`own_time`) must have used its
    cores too.
    """
    seconds, added, used = stretch.seconds, stretch.added, stretch.added.used
    disturbed_here = True  # as far as the kernel tells
    if used is not None:  # others are other tasks, and other machines under the same hypervisor
        system = 0.0 if own_time.kernel else used.system - own_time.system
        others = max(used.user - own_time.user, 0.0) + max(system, 0.0) + used.steal
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


# The manifest ---------------------------------------------------------------------------------------------------------


def manifest(
    plan: Plan, command: tuple[str, ...], measured: tuple[Backend, ...], session: Session,
    ranks: tuple[RankFacts, ...], align: str, cadence: str,
) -> Manifest:  # fmt: skip
    """Collective: one rank of each machine describes it. What takes long is added by `completed`.

    Whole on rank 0, which has the facts of all `ranks`; without hosts and GPUs elsewhere.
    """
    gpus = tuple(rank.gpu for rank in ranks)
    libraries: dict[Library, None] = {}
    for backend in measured:
        with contextlib.suppress(BackendUnavailable):  # known only when it is started; then it has none
            libraries |= dict.fromkeys(backend.libraries())
    return manifest_of(
        plan, command, ranks=session.world.size, protocol=protocol(plan, align, cadence),
        rank_gpus=gpus if any(gpus) else (), libraries=tuple(libraries), hosts=_hosts(session, ranks), environment={},
        thread_level={"requested": plan["thread_level"], "granted": session.thread_level},
        launcher=launcher.detect().title, simulated=any(backend.simulated for backend in measured),
    )  # fmt: skip


def manifest_of(plan: Plan, command: tuple[str, ...], **fields: Any) -> Manifest:
    """The manifest of a run that begins now, of one world or of many; `fields` are those in which these differ."""
    return Manifest(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        collbench=collbench.__version__, python=sys.version.split()[0],
        command=tuple(map(facts.printable, command)), title=plan.title, plan=plan.document, **fields,
    )  # fmt: skip


def completed(manifest: Manifest) -> Manifest:
    """With the environment, package versions and the SHA-256 of every library file: looked up when a run is kept.

    All backends are asked what matters to them, used or not: comparisons must see what differs between two runs.
    """
    libraries, environment = tuple(map(hashed, manifest.libraries)), facts.environment(backends.variables())
    return msgspec.structs.replace(manifest, libraries=libraries, packages=packages(), environment=environment)


def hashed(library: Library) -> Library:
    """The library with the SHA-256 of its file."""
    with contextlib.suppress(OSError):
        if library.path is not None:
            return msgspec.structs.replace(library, sha256=sha256_of(library.path))
    return library


def protocol(plan: Plan, align: str, cadence: str) -> Protocol:
    """How a plan measures. Alignment and cadence are those at the start: the former may change."""
    return Protocol(
        align=align, cadence=cadence, burst=plan.burst if cadence == "streaming" else 1, warmup=plan.warmup,
        check=plan.check, iters=plan.iters, budget=plan.budget_seconds, floor=plan.floor, cap=plan.cap,
        timeout=plan.timeout_seconds,
    )  # fmt: skip


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
    members = by_key((rank.host if each else "", rank.kernel_id) for rank in ranks)
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
