"""The run that `launch` is to write, looked at before anything waits for an engine: a queue may take hours."""

from __future__ import annotations

from collections.abc import Iterator
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

#: What of an image or environment makes it another build, as the manifest calls it.
_SOFTWARE = ("id", "libraries", "sources", "files")


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
            {(image.side, image.name): {part: getattr(image, part) for part in _SOFTWARE}
             for image in getattr(manifest.experiment, kind)}
            for manifest in (before, now)
        )  # fmt: skip
        for (side, name), was in old.items():
            found = new.get((side, name), dict.fromkeys(_SOFTWARE))
            if parts := [part for part in _SOFTWARE if was[part] != found[part]]:
                of_side = f" of side {side}" if side else ""
                raise RequestError(
                    f"--resume {where}: {kind.removesuffix('s')} {name}{of_side} has changed since the run began "
                    f"({', '.join(parts)}). Two builds in one run would be compared as one; begin a run with --out."
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


def changed_keys(before: LaunchPlan, now: LaunchPlan) -> dict[str, tuple[object, object]]:
    """Both values of each key that differs, by its dotted name such as `sides.other.variables.A`.

    Values are scalars and lists of them, or None where a table lacks the key. `sides` are the names of the sides; where
    these differ, what the sides hold is left out.
    """
    old, new = ({**dict(_leaves(msgspec.to_builtins(plan))), "sides": sorted(plan.sides)} for plan in (before, now))
    keys = {key: (old.get(key), new.get(key)) for key in (*old, *new) if old.get(key) != new.get(key)}
    return {key: values for key, values in keys.items() if "sides" not in keys or not key.startswith("sides.")}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, object]]:
    """What is in tables within tables, or in lists of tables, by dotted name."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value, 1):
            yield from _leaves(one, f"{key}[{number}]")
    else:
        yield key, value


def _changes(before: LaunchPlan, now: LaunchPlan) -> str:
    """The keys that differ, with both values: `launches: 2 then, 3 now`; empty where none does."""
    changed = [f"{key}: {_shown(old)} then, {_shown(new)} now" for key, (old, new) in changed_keys(before, now).items()]
    more = f"; and {len(changed) - _TOLD} more keys" if len(changed) > _TOLD else ""
    return "; ".join(changed[:_TOLD]) + more


def _shown(value: object) -> str:
    return "absent" if value is None else msgspec.json.encode(value).decode("utf-8")
