"""Whether all cases fit into the host memory of every machine and onto its disk, asked before the first is measured."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from collbench import collectives, workloads
from collbench.bindings.operations import USABLE_SHARE, available_bytes
from collbench.bindings.spec import Session
from collbench.collectives.case import CollectiveCase
from collbench.errors import CollbenchError, DoesNotFit, LibraryError, Unsupported
from collbench.machine.facts import RankFacts
from collbench.run.failures import Failure, cause
from collbench.run.sampling import Watch
from collbench.schema.axes import DTYPES
from collbench.units import format_bytes
from collbench.workloads.program import ProgramCase


def programs_do_not_fit(cases: tuple[ProgramCase, ...], here: int = 1, folder: str = ".") -> DoesNotFit | None:
    """Why the program that allocates or writes the most does not fit on this machine, which has so many of the ranks.

    None where it does. Programs run one by one, with their files in `folder`. One that cannot run here is skipped
    later, with the reason.
    """
    able = [case for case in cases if _missing(case) is None]
    return _exceeds_memory(able, here) or _exceeds_disk(able, folder)


def _exceeds_memory(able: Sequence[ProgramCase], here: int) -> DoesNotFit | None:
    on_machine = ((case.memory * here // case.case.where.ranks, case) for case in able)
    needed, largest = max(on_machine, key=lambda one: one[0], default=(0, None))
    free = available_bytes()
    if largest is None or free is None or needed <= free * USABLE_SHARE:
        return None
    ranks = f" for the {here} ranks on this machine" if here > 1 else ""
    return DoesNotFit(
        f"{largest.title}: needs {format_bytes(needed)} of memory{ranks}, and {format_bytes(free)} are free. "
        f"{how_to_fit(largest)}"
    )


def _exceeds_disk(able: Sequence[ProgramCase], folder: str) -> DoesNotFit | None:
    needed, largest = max(((case.disk, case) for case in able), key=lambda one: one[0], default=(0, None))
    if largest is None or needed == 0:
        return None
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if not disk.f_blocks or needed <= free * USABLE_SHARE:  # some file systems do not tell
        return None
    return DoesNotFit(
        f"{largest.title}: needs {format_bytes(needed)} in the folder {folder}, and {format_bytes(free)} are free. "
        "Lower the size of its files, or name a folder on another device."
    )


def _missing(case: ProgramCase) -> str | None:
    program = workloads.get(case.case.workload)
    return program.missing(program.choice(case.case))


def how_to_fit(case: ProgramCase) -> str:
    """What takes less memory."""
    what = "the batch" if "batch" in case.case.what else "the sizes"
    return f"Lower {what}{' or the number of ranks' if case.case.where.ranks > 1 else ''}."


def does_not_fit(
    session: Session, ranks: tuple[RankFacts, ...], cases: tuple[CollectiveCase, ...], watch: Watch
) -> DoesNotFit | None:
    """Why they do not fit; None where they do. Collective: all ranks get the answer of rank 0, which has the facts."""
    largest: dict[CollectiveCase, int] = {}  # of cases that differ only in size
    for case in cases:
        kind = msgspec.structs.replace(case, size=0)
        largest[kind] = max(largest.get(kind, 0), case.size)
    needed = max((_needed_bytes(session, kind, size, watch) for kind, size in largest.items()), default=0)
    reports = session.world.gather((needed, available_bytes()))
    answer: DoesNotFit | None = session.world.bcast(
        None if reports is None else _too_small(ranks, reports, max(largest.values(), default=0))
    )
    return answer


def _too_small(ranks: Sequence[RankFacts], reports: Sequence[tuple[int, int | None]], size: int) -> DoesNotFit | None:
    """The first machine that is too small, where one is; `reports` are needed and free bytes by rank."""
    machines: dict[str, list[int]] = {}
    for number, rank in enumerate(ranks):
        machines.setdefault(rank.kernel_id, []).append(number)
    for members in machines.values():
        total = sum(reports[number][0] for number in members)
        free = min((free for number in members if (free := reports[number][1]) is not None), default=None)
        if free is not None and total > free * USABLE_SHARE:
            return DoesNotFit(
                f"size {format_bytes(size)}: the buffers of {len(members)} ranks on {ranks[members[0]].host} "
                f"need {format_bytes(total)}, and {format_bytes(free)} are free. "
                "Lower the sizes or the ranks per host."
            )
    return None


def _needed_bytes(session: Session, case: CollectiveCase, size: int, watch: Watch) -> int:
    """Bytes of a rank's buffers for a case of that size, found by preparing it with one element per block.

    The library's own memory is not included. 0 for a case that will be skipped or will fail: its record says why.
    Collective: the next case is tried when all ranks have come out of this one.
    """
    watch.beat(f"trying {case.collective} on {case.backend} with one element")
    row, itemsize = collectives.get(case.collective), DTYPES[case.dtype]
    if case.ranks < row.min_ranks or (case.in_place and not row.has_in_place):
        return 0
    held, failure = 0, None
    try:
        held = session.prepare(case, row, 1).blocks_held
    except LibraryError as error:
        failure = Failure.of(session, error)
    except (Unsupported, CollbenchError, MemoryError):
        pass
    cause(session, failure, watch)
    return held * row.count(size, itemsize, case.ranks) * itemsize
