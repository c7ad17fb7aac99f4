"""What a gate is to answer: the planned cells, in `gate-plan.json` beside the run that measures both sides."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collbench.errors import RunReadError, RunWriteError
from collbench.schema.case import Case, refuse_odd
from collbench.schema.store import LARGEST_MANIFEST, write_synced
from collbench.schema.untrusted import Amount, Count, decode_as, read_whole

#: The sides of the launch plan of a gate, and of a self-test.
SIDES = ("base", "other")

FILE, VERSION = "gate-plan.json", 3

#: An empty file in the folder from the first launch until nothing is left to measure.
UNFINISHED = "gate-unfinished"


class Margin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The `share` that an operation may lose, of sizes of at most `largest` bytes; None: of all other sizes."""

    share: Amount
    largest: Count | None = None


#: By size, the smallest first; the last one is for all others.
Margins = tuple[Margin, ...]


def margin_of(margins: Margins, case: Case) -> float:
    """The share that a case may lose; without a size that of all others."""
    size = case["size"] if "size" in case.what else None
    return next(one.share for one in margins if one.largest is None or (size is not None and size <= one.largest))


def has_all_sizes(margins: Margins) -> bool:
    """Whether they are in order, and there is one for every size."""
    sizes = [one.largest for one in margins]
    known = [size for size in sizes if size is not None]
    return len(known) == len(sizes) - 1 and sizes[-1] is None and known == sorted(set(known))


class GatePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plan` names what is measured. `cells` are its cases in the order of the plan, to be measured on both sides.

    `margins` and `accepted` reasons are those with which the gate began; it is judged by them unless others are given.
    """

    gate: int = VERSION
    plan: str
    cells: tuple[Case, ...]
    margins: Margins = (Margin(0.05),)
    accepted: tuple[str, ...] = ()


def write_gate_plan(folder: Path, plan: GatePlan) -> None:
    """Write the file into the folder of a run that has none, and note that launches are being made.

    Raises:
        RunWriteError: it cannot be written.
    """
    try:
        if not (folder / FILE).exists():
            write_synced(folder / FILE, msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
        (folder / UNFINISHED).touch()
    except OSError as error:
        raise RunWriteError(f"{folder}: {error.strerror or error}.") from error


def is_gate(folder: Path) -> bool:
    """Whether the run in a folder is that of a gate."""
    return (folder / FILE).exists()


def is_unfinished(folder: Path) -> bool:
    """Whether the gate of a folder was interrupted: its launches are not all made, and `--resume` makes the others."""
    return (folder / UNFINISHED).exists()


def mark_finished(folder: Path) -> None:
    """Note that nothing is left to measure."""
    (folder / UNFINISHED).unlink(missing_ok=True)


def read_gate_plan(folder: Path) -> GatePlan:
    """The planned cells of the gate in a folder.

    Raises:
        RunReadError: the folder is not one that `collbench gate` wrote, or the file is damaged.
    """
    path = folder / FILE
    try:
        plan = decode_as(read_whole(path, LARGEST_MANIFEST), GatePlan)
    except OSError as error:
        raise RunReadError(f"{folder}: not written by collbench gate ({error.strerror}: {FILE}).") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    if plan.gate != VERSION:
        raise RunReadError(f"{path}: version {plan.gate}; this collbench reads {VERSION}.")
    if not plan.cells:
        raise _damaged(path, "it has no cells")
    if not has_all_sizes(plan.margins):
        raise _damaged(path, "margins are not in the order of sizes, or not of all of them")
    for case in plan.cells:
        refuse_odd(case, str(path))
    return plan


def _damaged(path: Path, why: str) -> RunReadError:
    return RunReadError(f"{path}: damaged, or not written by collbench gate: {why}. Measure again: --out DIR.")
