"""Facts of all ranks: software, cores, GPUs and loaded libraries, as rank 0 sees them and as records have them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

import collbench
from collbench.bindings.spec import Backend, Session, World, first_rank, gathered_once
from collbench.errors import BackendUnavailable
from collbench.machine import nvml
from collbench.machine.facts import RankFacts, format_cores, is_oversubscribed, machine_id, sha256_of
from collbench.run.shape import shared_core
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
    return tuple(map(_joined, *gathered)) if world.rank == 0 else ()  # type: ignore[arg-type]


def ranks_here(world: World, ranks: tuple[RankFacts, ...]) -> int:
    """How many ranks there are on this machine; `ranks` are known on rank 0. Collective."""
    numbers: dict[str, int] = world.bcast(dict(Counter(rank.kernel_id for rank in ranks)))
    return numbers.get(machine_id(), world.size)  # simulated ranks are on no machine


def _joined(
    host: tuple[str, str, str], confinement: Confinement, namespaces: tuple[tuple[str, int], ...],
    cores: tuple[frozenset[int], tuple[tuple[int, ...], ...]], own: tuple[str | None, str | None],
) -> RankFacts:  # fmt: skip
    container, gpu = own
    confined = msgspec.structs.replace(confinement, namespaces=dict(namespaces))
    return RankFacts(*host, cores[0], container, confined, gpu, cores[1])


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
                p50=_five_numbers(medians[ranks]),
                gpus=len({facts[number].gpu for number in ranks} - {None}),
            )
            for ranks in members.values()
        ),
        slowest=tuple(SlowRank(rank=number, p50=round(p50[number], 10), host=facts[number].host) for number in slowest),
    )


def _five_numbers(medians: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float, float, float, float]:
    """Smallest, lower quartile, median, upper quartile, largest; to a tenth of a nanosecond."""
    low, first, middle, third, high = np.quantile(medians, (0.0, 0.25, 0.5, 0.75, 1.0)).round(10).tolist()
    return low, first, middle, third, high


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
    for rank, found in enumerate(by_rank):
        for one in found:
            ranks.setdefault(Loaded(*one), []).append(rank)
    return tuple(said(one, format_cores(of) if len(of) < world.size else "") for one, of in ranks.items())


def loaded(names: tuple[str, ...], maps: Path = Path("/proc/self/maps")) -> tuple[Loaded, ...]:
    """The mapped files of this process whose names begin so; of a name without one, that there is none."""
    paths: dict[str, None] = {}
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            paths[words[5]] = None
    found: list[Loaded] = []
    for name in names:
        own = [path for path in paths if _is(path, name)]
        found += [Loaded(name, path, _sha256(path)) for path in own] or [Loaded(name)]
    return tuple(found)


def _is(path: str, name: str) -> bool:
    """Whether a file is a version of this library: `libmpi.so` or `libmpi.so.40`, and not `libmpi.sock`."""
    rest = Path(path.removesuffix(_DELETED)).name.removeprefix(name)
    return rest == "" or (rest.startswith(".") and len(rest) < len(Path(path).name))


def _sha256(path: str) -> str:
    """Of a file as it is; zeros where it cannot be read, or was removed since it was loaded."""
    try:
        return sha256_of(path)
    except OSError:
        return UNREAD


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
    return (("collbench", collbench.__version__), *((one.name, one.version) for one in libraries if not one.used_by))


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
    own = ranks[rank]
    return tuple(
        number
        for number, other in enumerate(ranks)
        if other.kernel_id == own.kernel_id and other.physical & own.physical
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
