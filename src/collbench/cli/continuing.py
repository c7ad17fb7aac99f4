"""`launch --resume`: the run that is there, how it may be continued and to which end, and the command that does it.

A run until decided may be given more launches at any time, whatever was seen of it: its verdicts are bets, which hold
after any number of blocks. So may a run with a fixed number of launches, if it is judged by bets from then on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from collbench.analysis.results import cells_of, some_from
from collbench.analysis.runs import shortage
from collbench.cli.analysing import typed_margins, typed_share
from collbench.cli.deciding import Decider, StandingOf
from collbench.errors import RequestError
from collbench.launch.cells import LaunchCell
from collbench.launch.expansion import ExpandedPlan
from collbench.schema.manifest import Manifest, Until, read_manifest
from collbench.schema.plan import LaunchPlan, check_launch_plan
from collbench.schema.record import Record
from collbench.schema.store import RecordStream, RunWriter

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


def own_plan(where: Path) -> LaunchPlan:
    """The plan of a run that is resumed.

    Raises:
        RequestError: this version cannot read it.
        RunReadError: there is no run.
    """
    plan = plan_in(read_manifest(where))
    if plan is None:
        raise RequestError(f"--resume {where}: this collbench cannot read the plan that the run has. Name its PLAN.")
    return plan


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


@dataclass(frozen=True)
class Continued:
    """What is asked of a run that is resumed: its `plan` from now on, and the plan that it has so far."""

    plan: LaunchPlan
    before: LaunchPlan

    @property
    def extends(self) -> bool:
        return self.plan is not self.before


def continued(plan: LaunchPlan, where: Path, until: Until | None, launches: int | None) -> Continued:
    """The plan with the end of the run in a folder, where flags do not ask for another (None: no such flag).

    Raises:
        RequestError: this run cannot be continued to that end; where other keys differ, `begun_run` refuses it.
        RunReadError: there is no run.
    """
    run = plan_in(read_manifest(where))
    if run is None:
        return Continued(plan, plan)
    if run.until == "decided":
        _refuse_fewer(where, run, until, launches)
        most = plan.launches if launches is not None else max(plan.launches, run.launches)
        plan = msgspec.structs.replace(plan, until=until or run.until, launches=most)
    if plan.until == "launches" and run.until == "launches" and plan.launches > run.launches:
        raise RequestError(
            f"--resume {where}: has {run.launches} launches of each cell, and {plan.launches} are asked for. Looking "
            "at a run and then measuring more makes false alarms, unless its verdicts allow for it: add --until "
            "decided. Or begin a run with --out."
        )
    if plan.until == "decided" and run.until == "launches" and plan.launches <= run.launches:
        raise RequestError(_no_more(where, run, plan.launches, until))
    if plan.until == "decided" and plan.launches > run.launches:
        begun = msgspec.structs.replace(plan, until=run.until, launches=run.launches)
        return Continued(check_launch_plan(plan), begun)
    return Continued(plan, plan)


def _refuse_fewer(where: Path, run: LaunchPlan, until: Until | None, launches: int | None) -> None:
    """Of a run until decided, a lower end than it has."""
    if launches is not None and launches < run.launches and until != "launches":
        raise RequestError(
            f"--resume {where} --launches {launches}: the run has at most {run.launches} launches of each cell. Ask "
            f"for {run.launches} or more, or leave out --launches."
        )


def _no_more(where: Path, run: LaunchPlan, most: int, until: Until | None) -> str:
    """Why a run with a fixed number of launches cannot be continued until decided with at most so many."""
    asked, more = f"--resume {where} --until decided", f"--launches {2 * run.launches}."
    if not _is_short(where):
        return (f"{asked}: has {run.launches} launches of each cell, and at most {most} are asked for. "
                f"Ask for more: {more}")  # fmt: skip
    same = f"--resume {shlex.quote(str(where))}"
    finish = f"{same} alone (without --until)" if until else f"{same} --until launches"  # else the plan says decided
    return (f"{asked}: {run.launches} launches of each cell are planned, and not all measured: finish it first with "
            f"{finish}, or ask for more: {more}")  # fmt: skip


def _is_short(where: Path) -> bool:
    """Whether launches of a run with a fixed number are missing."""
    manifest, cells = read_manifest(where), cells_of(RecordStream(where))
    return manifest.experiment is not None and (not cells or shortage(where, manifest, cells.values()).cells > 0)


def extended(manifest: Manifest, plan: LaunchPlan) -> Manifest:
    """As the manifest of a run is when the run ends as the plan does."""
    if manifest.experiment is None:
        return manifest
    end = msgspec.structs.replace(manifest.experiment, launches=plan.launches, until=plan.until)
    return msgspec.structs.replace(manifest, experiment=end)


def closed(
    expanded: ExpandedPlan, manifest: Manifest, records: tuple[Record, ...], extends: bool
) -> frozenset[tuple[LaunchCell, int]]:
    """Launches of blocks that are over: what was left out of them before is not measured long after the rest.

    Of a run that was given more launches: all before the last block with records, and this one too if the run `extends`
    now. Blocks that were to be measured whole are completed.
    """
    planned = (manifest.plan or {}).get("launches")
    if manifest.experiment is None or not records or expanded.plan.launches == planned:
        return frozenset()
    first, last = some_from(manifest) or 0, max(record.launch for record in records)
    over = range(first, last + 1 if extends else last)
    return frozenset((launch.cell, launch.number) for launch in expanded.order if launch.number in over)


def nothing_to_decide(
    expanded: ExpandedPlan, manifest: Manifest, records: tuple[Record, ...], standing: StandingOf
) -> str:  # fmt: skip
    """Why more launches than the run has would decide nothing, so that it stays as it is; empty where they may."""
    now, most = extended(manifest, expanded.plan), expanded.plan.launches
    fixed, measured = some_from(now) or 0, max((record.launch for record in records), default=-1) + 1
    if measured < fixed:
        return ""
    said: list[str] = []
    wanted = Decider(expanded, now, records, lambda line, left: said.append(line), standing=standing)(measured)
    if wanted is None or wanted:
        return ""
    return f"{'; '.join(said)} with at most {most} launches, so nothing is started, and the run stays as it was"


#: Options that say where, in place of which the command has `--resume`.
_PLACES = ("out", "resume")


def resuming(folder: Path, **changed: Any) -> str:
    """`collbench launch 'my plan.toml' --resume 'k 9' --site n.toml`; options that are `changed` have these values."""
    context = click.get_current_context()
    options = [option for option in context.command.params if isinstance(option, click.Option)]
    words = [word for option in options if option.name not in _PLACES for word in _typed(context, option, changed)]
    plan = context.params["plan"]
    typed = [] if plan is None else [str(plan)]
    return shlex.join(["collbench", str(context.command.name), *typed, "--resume", str(folder), *words])


def _typed(context: click.Context, option: click.Option, changed: Mapping[str, Any]) -> Iterator[str]:
    """The words of an option; none where it was left out, on the command line and in what is changed."""
    name = option.name or ""
    if name not in changed and context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
        return
    value = changed.get(name, context.params[name])
    for one in value if option.multiple else (value,):
        yield next(form for form in option.opts if form.startswith("--"))
        if not option.is_flag:
            yield _written(one)


def _written(value: Any) -> str:
    """A value as it can be typed."""
    if isinstance(value, tuple):
        return typed_margins(value)
    return typed_share(value) if isinstance(value, float) else str(value)
