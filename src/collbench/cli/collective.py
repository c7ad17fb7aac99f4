"""`collbench allreduce` and its sisters: one command per collective, all with the same flags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from collbench import backends, collectives
from collbench.cli.options import DEVICE, OUTPUT, SAMPLES, SIZES, WORLD, flags, of_axes
from collbench.cli.sink import carry_out
from collbench.collectives.row import Collective
from collbench.errors import RequestError
from collbench.run.experiment import default_backend
from collbench.schema.axes import Situation, Sizes, choices_of
from collbench.schema.plan import Plan
from collbench.units import parse_size

_OTHER = {"cpu": "GPU (gpu)", "gpu": "host (cpu)"}


def make_command(name: str) -> click.Command:
    """The command of a collective."""
    row = collectives.get(name)

    @click.command(name=name, help=f"{row.title}: {row.summary}.")
    @flags(SIZES, of_axes(), DEVICE, SAMPLES, OUTPUT, WORLD)
    def command(
        style: str, out: Path | None, output_file: Path | None, ranks: int | None, fault: str | None, **typed: Any
    ) -> None:
        plan = plan_of(name, style, typed)
        notices = [
            f"ignored: {owner} does not use {', '.join(unused)}."
            for owner, unused in _unused(row, plan).items()
            if unused
        ]
        carry_out(plan, style, out, output_file, ranks, fault, notices)

    return command


def _unused(row: Collective, plan: Plan) -> dict[str, list[str]]:
    """Flags that were typed and mean nothing, by what they mean nothing to: the collective, or its backend."""
    source = click.get_current_context().get_parameter_source
    (backend,) = plan["backends"] or (default_backend(),)
    situation = Situation(row, backends.get(backend), ranks=1)
    unused: dict[str, list[str]] = {row.name: [], f"backend {backend}": []}
    for axis, choice in choices_of("what", "how").items():
        flags = {axis: choice.flag.spelled[0]} if choice.flag else {"minbytes": "-b", "maxbytes": "-e"}
        typed = [flag for name, flag in flags.items() if source(name) is ParameterSource.COMMANDLINE]
        if not situation.has(axis, choice):
            unused[f"backend {backend}" if choice.row(row) else row.name] += typed
    return unused


def plan_of(name: str, style: str, typed: Mapping[str, Any]) -> Plan:
    """The plan that the flags of a collective stand for; those that are no axis have the names of the plan's keys.

    Raises:
        RequestError: flags that contradict each other.
    """
    keys = dict(typed)
    sizes = _sizes(*(keys.pop(flag) for flag in ("minbytes", "maxbytes", "stepfactor", "stepbytes")))
    keys["cadence"] = _cadence(keys["cadence"], keys.pop("blocking"))
    keys["backend"] = _backend_on(keys.pop("device"), keys["backend"])
    if keys["in_place"] is None and style == "nccl-tests":
        keys["in_place"] = "both"
    for axis, choice in choices_of("what", "how").items():
        if choice.flag is not None:
            keys[choice.key] = choice.read(keys.pop(axis))
    return Plan(title=f"{name} {sizes.min} to {sizes.max}", collectives=(name,), sizes=sizes, **keys)


def _sizes(low: str, high: str | None, factor: int | None, step: str | None) -> Sizes:
    if step is not None and factor is not None:
        raise RequestError("-i/--stepbytes and -f/--stepfactor: use one of them.")
    if high is None:
        high = "4M" if parse_size(low) <= parse_size("4M") else low
    if low == "8" and parse_size(high) < 8:
        raise RequestError(f"-e {high}: is below -b, which is 8 by default; give -b too.")
    return Sizes(min=low, max=high, factor=2 if factor is None else factor, step=step)


def _cadence(cadence: str | None, blocking: int | None) -> str:
    if cadence is not None and blocking is not None and (cadence == "isolated") != bool(blocking):
        raise RequestError(f"--cadence {cadence} and -z {blocking} contradict each other; use one of them.")
    return cadence or ("streaming" if blocking == 0 else "isolated")


def _backend_on(device: str | None, backend: str | None) -> str | None:
    """The backend that was asked for, or the usual one on that device.

    Raises:
        RequestError: the backend has its data elsewhere.
    """
    if device is None:
        return backend
    if backend is None:
        return default_backend(device)
    if backends.get(backend).device != device:
        usable = ", ".join(other.name for other in backends.every() if other.device == device)
        raise RequestError(f"--device {device}: {backend} has its data on the {_OTHER[device]}. There are: {usable}.")
    return backend
