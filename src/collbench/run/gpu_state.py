"""The GPUs of all ranks just before and just after samples are taken: clocks, power, throttling."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.bindings.agreement import first_rank
from collbench.bindings.spec import Session, World
from collbench.machine import nvml
from collbench.machine.facts import RankFacts
from collbench.schema.gpu import Reading
from collbench.schema.record import GpuState

#: Most ranks that a note names.
MOST_NAMED = 64


def look(session: Session) -> tuple[Reading, ...]:
    """The GPU of this rank now; empty where it has none, or NVML does not answer."""
    return () if session.gpu is None else nvml.readings((session.gpu.uuid,))


def between(before: tuple[Reading, ...], after: tuple[Reading, ...], world: World) -> tuple[GpuState, ...]:
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
