"""Ladders of isolation: the steps of an engine, from the most isolated to the least."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collbench.errors import PlanError, suggestion
from collbench.schema.axes import STEPS


@dataclass(frozen=True)
class Sharing:
    """What the boxes of a world share: the IPC namespace, the network with its hostname, all GPUs.

    `host`: they share it with the host too, whose IPC, PID, network and UTS namespaces they are in. `shm_bytes` is the
    size of a box's /dev/shm; None where it is the host's.
    """

    ipc: bool = True
    net: bool = True
    all_gpus: bool = True
    host: bool = True
    shm_bytes: int | None = None


@dataclass(frozen=True)
class Step:
    """A step of an engine's ladder: `adds` says what it adds to the steps before, `sharing` what is shared then.

    `between`: it adds nothing to a single box, which is at the step before instead.
    """

    name: str
    adds: str
    sharing: Sharing
    between: bool = False


Ladder = tuple[Step, ...]

#: Size of /dev/shm from the step `limits` on, and that of a container otherwise (bytes).
LARGE_SHM, USUAL_SHM = 1 << 30, 64 << 20

_NOTHING = Sharing(ipc=False, net=False, all_gpus=False, host=False, shm_bytes=LARGE_SHM)

#: What containers share at each step.
SHARING = {
    "strict": replace(_NOTHING, shm_bytes=USUAL_SHM),
    "limits": _NOTHING,
    "ipc": replace(_NOTHING, ipc=True),
    "net": replace(_NOTHING, ipc=True, net=True),
    "visible": replace(_NOTHING, ipc=True, net=True, all_gpus=True),
    "files": Sharing(),
}


def ladder_of(*steps: Step) -> Ladder:
    """The ladder with these steps. Their order is that of `schema.axes.STEPS`, by which runs are read too.

    Raises:
        ValueError: a step has a name that is not among them.
    """
    return tuple(sorted(steps, key=lambda step: STEPS.index(step.name), reverse=True))


def step_of(ladder: Ladder, name: str) -> Step:
    """The step of that name.

    Raises:
        PlanError: the ladder has none.
    """
    for step in ladder:
        if step.name == name:
            return step
    known = tuple(step.name for step in ladder)
    raise PlanError(f"isolation {name!r}: unknown to this engine. {suggestion(name, known)}")


def steps_of(ladder: Ladder, boxes: int, asked: tuple[str, ...]) -> tuple[str | None, ...]:
    """The steps that differ in worlds of so many boxes, each once; a single None where boxes isolate nothing.

    Where none is asked for it is the first, the most isolated. Those that the ladder lacks are left out.
    """
    if not ladder:
        return (None,)
    steps = [step for name in asked for step in ladder if step.name == name] if asked else [ladder[0]]
    return tuple(dict.fromkeys(_in_force(ladder, step, boxes) for step in steps))


def lacking(ladder: Ladder, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The steps that are asked for and that the ladder lacks, though another engine's has them.

    Raises:
        PlanError: no engine has a step of that name.
    """
    own = tuple(step.name for step in ladder)
    for name in asked:
        if name not in (*STEPS[1:], *own):
            raise PlanError(f"isolation {name!r}: unknown. {suggestion(name, own)}")
    return tuple(dict.fromkeys(name for name in asked if name not in own))


def _in_force(ladder: Ladder, step: Step, boxes: int) -> str:
    if boxes > 1 or not step.between:
        return step.name
    earlier = ladder[: ladder.index(step)]
    return next(step.name for step in reversed(earlier) if not step.between)
