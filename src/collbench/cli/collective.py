"""`collbench allreduce` and its sisters: one command per collective, all with the same flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from collbench import backends, collectives
from collbench.cli.measuring import carry_out
from collbench.cli.options import OURS, OUTPUT, SWEEP, WORLD, flags
from collbench.collectives.row import Collective
from collbench.errors import RequestError
from collbench.machine import launcher
from collbench.run.choosing import default_backend
from collbench.schema.axes import STAGINGS
from collbench.schema.plan import Plan, Sizes
from collbench.units import parse_size

_OTHER = {"cpu": "GPU (gpu)", "gpu": "host (cpu)"}
_IN_PLACE = {"yes": (True,), "no": (False,), "both": (False, True)}


def make_command(name: str) -> click.Command:
    """The command of a collective."""
    row = collectives.get(name)

    @click.command(name=name, help=f"{row.title}: {row.summary}.")
    @flags(SWEEP, OURS, OUTPUT, WORLD)
    def command(
        style: str, out: Path | None, output_file: Path | None, ranks: int | None, fault: str | None, **values: Any
    ) -> None:
        if (unused := _unused(row)) and launcher.detect().rank == 0:
            click.echo(f"collbench: {name} does not use {', '.join(unused)}.", err=True)
        carry_out(plan_of(name, style, **values), style, out, output_file, ranks, fault)

    return command


def _unused(row: Collective) -> list[str]:
    """Flags that were typed and mean nothing for this collective."""
    meaning = (("ops", "-o", row.reduces), ("root", "-r", row.rooted), ("dtypes", "-d", row.moves_data),
               ("minbytes", "-b", row.moves_data), ("maxbytes", "-e", row.moves_data),
               ("cudagraph", "-G", not row.has_server))  # fmt: skip
    source = click.get_current_context().get_parameter_source
    return [flag for name, flag, used in meaning if not used and source(name) is ParameterSource.COMMANDLINE]


def plan_of(
    name: str,
    style: str,
    *,
    minbytes: str,
    maxbytes: str | None,
    stepfactor: int | None,
    stepbytes: str | None,
    iters: int | None,
    warmup_iters: int,
    check: int,
    ops: str,
    dtypes: str,
    root: int,
    blocking: int | None,
    cudagraph: int,
    local_register: int,
    backend: str | None,
    driver: Any,
    thread_level: Any,
    device: str | None,
    staging: Any,
    share_gpu: bool,
    gate: str,
    in_place: str | None,
    cadence: str | None,
    burst: int,
    budget: str,
    floor: int,
    cap: int,
    timeout: str,
) -> Plan:
    """The plan that the flags of a collective stand for.

    Raises:
        RequestError: flags that contradict each other.
    """
    backend = _backend_on(device, backend)
    if stepbytes is not None and stepfactor is not None:
        raise RequestError("-i/--stepbytes and -f/--stepfactor: use one of them.")
    if cadence is not None and blocking is not None and (cadence == "isolated") != bool(blocking):
        raise RequestError(f"--cadence {cadence} and -z {blocking} contradict each other; use one of them.")
    if maxbytes is None:
        maxbytes = "4M" if parse_size(minbytes) <= parse_size("4M") else minbytes
    places = in_place or ("both" if style == "nccl-tests" else "no")
    return Plan(
        title=f"{name} {minbytes} to {maxbytes}",
        collectives=(name,),
        backends=() if backend is None else (backend,),
        drivers=(driver,),
        thread_level=thread_level,
        dtypes=tuple(dtypes.split(",")),
        ops=tuple(ops.split(",")),
        roots=(root,),
        sizes=Sizes(min=minbytes, max=maxbytes, factor=2 if stepfactor is None else stepfactor, step=stepbytes),
        in_place=_IN_PLACE[places],
        gate=gate,
        cadence=cadence or ("streaming" if blocking == 0 else "isolated"),
        warmup=warmup_iters,
        check=check,
        iters=iters,
        budget=budget,
        floor=floor,
        cap=cap,
        timeout=timeout,
        burst=burst,
        staging=STAGINGS if staging == "both" else (staging,),
        registered=(bool(local_register),),
        cudagraph=cudagraph,
        share_gpu=share_gpu,
    )


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
        there = ", ".join(name for name in backends.names() if backends.get(name).device == device)
        raise RequestError(f"--device {device}: {backend} has its data on the {_OTHER[device]}. There are: {there}.")
    return backend
