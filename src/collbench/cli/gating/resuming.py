"""`gate --resume`: where a gate can begin, and whether a gate is the one that was begun."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from collbench.characters import in_one_line
from collbench.cli.begun import BegunRun, begun_run
from collbench.errors import RequestError
from collbench.schema.gate_plan import FILE, SIDES, GatePlan, is_unfinished, read_gate_plan
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.new_folder import refuse_unusable


def refuse_unfree(folder: Path) -> None:
    """Whether a gate can begin in a folder; where one is in it, what can be done with that is told.

    Raises:
        RequestError: there is something in it.
        RunWriteError: nothing can be written there.
    """
    try:
        refuse_unusable(folder)
    except RequestError as error:
        if not (folder / FILE).exists():
            raise
        named = shlex.quote(in_one_line(str(folder)))
        can = f"go on with it: --resume {named}" if is_unfinished(folder) else f"judge it again: collbench gate {named}"
        raise RequestError(f"{str(error).removesuffix('.')}, or {can}.") from error


def begun_sides(plan: GatePlan, plans: Sequence[LaunchPlan], folder: Path) -> tuple[BegunRun, BegunRun]:
    """Both runs of the gate in a folder, opened to be gone on with. `plans` are those of the sides.

    Raises:
        RequestError: it was begun with another plan or other sides; what differs is named.
        RunReadError, RunWriteError: it cannot be read or written, or another program writes it.
    """
    before = read_gate_plan(folder)
    if changed := "; ".join(_changes(before, plan)):
        raise RequestError(f"--resume {folder}: was begun otherwise ({changed}). Ask for the same, or begin a gate "
                           "with --out.")  # fmt: skip
    base, other = (begun_run(plan, folder / name) for name, plan in zip(SIDES, plans, strict=True))
    if before != plan:
        for run in (base, other):
            run.writer.close()
        raise RequestError(f"--resume {folder}: the plan had other cells when it was begun. Begin a gate with --out.")
    return base, other


def _changes(before: GatePlan, now: GatePlan) -> Iterator[str]:
    """What was typed otherwise, with both values, and files that have changed; keys of plans are told by their runs."""
    if before.plan != now.plan:
        yield f"plan: {before.plan} then, {now.plan} now"
    for name, then, side in zip(SIDES, before.sides, now.sides, strict=True):
        if then.asked != side.asked:
            yield f"{name}: {then.title} then, {side.title} now"
        yield from (f"{name}: {path} has changed since" for path, digest in side.files.items()
                    if then.files.get(path, digest) != digest)  # fmt: skip
