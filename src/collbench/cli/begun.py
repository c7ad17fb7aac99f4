"""The run that `launch` is to write, looked at before anything waits for an engine: a queue may take hours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from collbench.errors import RequestError
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Manifest
from collbench.schema.store import RunWriter, read_manifest

#: Where something runs is no part of the experiment.
_ADDRESSES = {"docker_host": "", "site": ""}

#: Most keys of a plan whose values are told.
_TOLD = 3


@dataclass(frozen=True)
class BegunRun:
    """A run that is gone on with, and that nobody else writes meanwhile."""

    manifest: Manifest
    writer: RunWriter


def begun_run(plan: LaunchPlan, where: Path) -> BegunRun:
    """The run in a folder, opened to be gone on with.

    Raises:
        RequestError: it was made with another plan, or not by `collbench launch`.
        RunReadError, RunWriteError: it cannot be read or written, or another program writes it.
    """
    manifest = read_manifest(where)
    if manifest.experiment is None:
        raise RequestError(f"--resume {where}: was not written by collbench launch.")
    before = plan_in(manifest)
    if before is None:
        raise RequestError(f"--resume {where}: was made with another plan, which this collbench cannot read. "
                           "Begin a run with --out.")  # fmt: skip
    if changed := _changes(before, _plain(plan)):
        raise RequestError(
            f"--resume {where}: was made with another plan ({changed}). Use that plan, or begin a run with --out."
        )
    return BegunRun(manifest, RunWriter.resume(where))


def refuse_other_software(before: Manifest, now: Manifest, where: Path) -> None:
    """A run is one experiment: the same images and environments (the engine may have another address).

    Raises:
        RequestError: one of them is not the same.
    """
    for kind in ("images", "environments"):
        old, new = (
            {(image.side, image.name): (image.id, image.libraries, image.sources, image.files)
             for image in getattr(manifest.experiment, kind)}
            for manifest in (before, now)
        )  # fmt: skip
        for side, name in old:
            if old[side, name] != new.get((side, name)):
                of_side = f" of side {side}" if side else ""
                raise RequestError(
                    f"--resume {where}: {kind.removesuffix('s')} {name}{of_side} has changed since the run began. Two "
                    "builds in one run would be compared as one; begin a run with --out."
                )


def plan_in(manifest: Manifest) -> LaunchPlan | None:
    """The plan that a run has now, with defaults for keys that it does not have; None: this version cannot read it.

    A run that was continued until decided has another end than the plan that it was begun with.
    """
    try:
        plan = _plain(manifest.plan)
    except msgspec.ValidationError:
        return None
    end = manifest.experiment
    return plan if end is None else msgspec.structs.replace(plan, launches=end.launches, until=end.until)


def _plain(plan: LaunchPlan | dict[str, Any] | None) -> LaunchPlan:
    """A plan as it comes back from a manifest, wherever it runs."""
    read = msgspec.convert(msgspec.json.decode(msgspec.json.encode(plan)), LaunchPlan)
    return msgspec.structs.replace(read, **_ADDRESSES)


def _changes(before: LaunchPlan, now: LaunchPlan) -> str:
    """The keys that differ, with both values: `launches: 2 then, 3 now`; empty where none does."""
    values = [(field.name, getattr(before, field.name), getattr(now, field.name))
              for field in msgspec.structs.fields(LaunchPlan)]  # fmt: skip
    changed = [f"{name}: {_shown(old)} then, {_shown(new)} now" for name, old, new in values if old != new]
    more = f"; and {len(changed) - _TOLD} more keys" if len(changed) > _TOLD else ""
    return "; ".join(changed[:_TOLD]) + more


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8")
