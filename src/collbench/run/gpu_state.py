"""The GPUs of all ranks just before and just after samples are taken: clocks, power, throttling."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.bindings.spec import Session, World
from collbench.machine import nvml
from collbench.machine.facts import RankFacts
from collbench.schema.gpu import Reading
from collbench.schema.record import GpuState


def look(session: Session) -> tuple[Reading, ...]:
    """The GPU of this rank now; nothing where it has none, or NVML does not answer."""
    return () if session.gpu is None else nvml.readings((session.gpu.uuid,))


def between(before: tuple[Reading, ...], after: tuple[Reading, ...], world: World) -> tuple[GpuState, ...]:
    """Every GPU once, on rank 0; elsewhere nothing. Collective."""
    mine = [GpuState(before=one, after=other) for one, other in zip(before, after, strict=False)]
    heard = world.gather(mine) or []
    return tuple({state.before.uuid: state for states in heard for state in states}.values())


def cramped(ranks: Iterable[RankFacts]) -> tuple[str, ...]:
    """A note where a rank with a GPU may use one core only: the library's own threads share it with the call."""
    alone = [str(number) for number, rank in enumerate(ranks) if rank.gpu is not None and len(rank.cores) == 1]
    if not alone:
        return ()
    who = f"rank{'s' if len(alone) > 1 else ''} {', '.join(alone)}"
    return (f"{who}: one core for the call and for the library's own threads; mpirun --bind-to none gives more",)


def is_shared(ranks: Iterable[RankFacts]) -> bool:
    """Whether two ranks use one GPU."""
    used = [(rank.kernel_id, rank.gpu) for rank in ranks if rank.gpu is not None]
    return len(set(used)) < len(used)
