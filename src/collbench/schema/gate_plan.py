"""What a gate is asked: two sides of a plan, and every cell that is to be answered: `gate-plan.json` in its folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collbench.errors import RunReadError, RunWriteError
from collbench.schema.case import Case, refuse_odd
from collbench.schema.store import LARGEST_MANIFEST, write_synced
from collbench.schema.untrusted import decode_as, read_whole

#: Names of the two runs in a gate's folder, and of sides in messages.
SIDES = ("base", "other")

FILE, VERSION = "gate-plan.json", 1

#: An empty file in the folder from the first launch until nothing is left to measure.
UNFINISHED = "gate-unfinished"


class Side(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One side: `asked` as it was typed, `image=REF` and so on; none: the plan as it stands.

    `images` are those of the plan that it replaced, by name. `variables` are set for its ranks. `files` are the SHA-256
    of libraries that are put in front, by path; `preload` are those of them that are loaded before all others.
    """

    asked: tuple[str, ...] = ()
    images: dict[str, str] = {}
    variables: dict[str, str] = {}
    files: dict[str, str] = {}
    preload: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """As it was typed, in one line."""
        return ", ".join(self.asked) or "the plan as it stands"


class GatePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plan` names what is measured. `cells` are the cases of both sides, in the order of the plan.

    `watched` are the libraries that ranks of both sides tell of.
    """

    gate: int = VERSION
    plan: str
    base: Side
    other: Side
    cells: tuple[tuple[Case, Case], ...]
    watched: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[Side, Side]:
        """Base and other."""
        return self.base, self.other


def write_gate_plan(folder: Path, plan: GatePlan) -> None:
    """Write the file in a folder that has none.

    Raises:
        RunWriteError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_synced(folder / FILE, msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
    except OSError as error:
        raise RunWriteError(f"--out {folder}: {error.strerror or error}. Nothing was measured.") from error


def is_unfinished(folder: Path) -> bool:
    """Whether the gate of a folder was interrupted: its launches are not all made, and `--resume` makes the others."""
    return (folder / UNFINISHED).exists()


def mark_unfinished(folder: Path) -> None:
    """Note that launches are being made.

    Raises:
        RunWriteError: it cannot be written.
    """
    try:
        (folder / UNFINISHED).touch()
    except OSError as error:
        raise RunWriteError(f"{folder / UNFINISHED}: {error.strerror or error}.") from error


def mark_finished(folder: Path) -> None:
    """Note that nothing is left to measure."""
    (folder / UNFINISHED).unlink(missing_ok=True)


def read_gate_plan(folder: Path) -> GatePlan:
    """What the gate of a folder was asked.

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
    for cases in plan.cells:
        for case in cases:
            refuse_odd(case, str(path))
    return plan


def _damaged(path: Path, why: str) -> RunReadError:
    return RunReadError(f"{path}: damaged, or not written by collbench gate: {why}. Measure again: --out DIR.")
