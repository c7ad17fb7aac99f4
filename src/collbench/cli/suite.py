"""`collbench suite [NAMES] [PARAMETER=VALUES]`: benchmarks of one machine, each a workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from collbench import workloads
from collbench.cli.options import OUTPUT, flags
from collbench.cli.sink import carry_out
from collbench.errors import RequestError, suggestion
from collbench.run.expand import parameters_of
from collbench.schema.plan import USUAL_CAP, Plan
from collbench.workloads.program import Program


@click.command(name="suite")
@click.argument("words", nargs=-1, metavar="[NAMES] [PARAMETER=VALUES]...")
@click.option("-n", "--iters", type=int, default=None, metavar="N", help="Exactly N samples, instead of a time budget.")
@click.option(
    "-w",
    "--warmup_iters",
    "warmup",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Samples that are not counted, before the first.",
)
@click.option("--budget", default="5s", show_default=True, metavar="TIME", help="Time for the samples of a benchmark.")
@click.option(
    "--floor", type=int, default=3, show_default=True, metavar="N", help="Samples at least, whatever the budget."
)
@click.option(
    "-T", "--timeout", default="300s", show_default=True, metavar="TIME", help="Longest time of one execution."
)
@click.option(
    "--folder", default=".", show_default=True, metavar="DIR", help="Where benchmarks that work in files make theirs."
)
@flags(OUTPUT)
def command(
    words: tuple[str, ...], iters: int | None, warmup: int, budget: str, floor: int, timeout: str, folder: str,
    style: str, out: Path | None, output_file: Path | None,
) -> None:  # fmt: skip
    """Measure benchmarks of this machine, without MPI and without an engine.

    NAMES are suites or benchmarks; without any, what there is is listed. PARAMETER=VALUES is a parameter of these
    benchmarks with values between commas: threads=1,2 measures both. linpack.n=500 is a parameter of one of them.
    """
    names = [word for word in words if "=" not in word]
    if not words:
        _list()
        return
    programs = _programs(names)
    asked = _parameters(programs, [word for word in words if "=" in word])
    for line in _ambiguous(programs, asked):
        click.echo(f"collbench: {line}", err=True)
    plan = Plan(
        title=f"suite {' '.join(words)}", benchmarks=tuple(_with(program, asked) for program in programs),
        iters=iters, warmup=warmup, budget=budget, floor=floor, cap=max(floor, USUAL_CAP), timeout=timeout,
        folder=folder,
    )  # fmt: skip
    carry_out(plan, style, out, output_file)


def _list() -> None:
    for suite, names in workloads.suites().items():
        click.echo(suite)
        for name in names:
            program = workloads.get(name)
            reason = program.missing()
            click.echo(f"  {'yes' if reason is None else 'no '} {name:<17} {program.summary}")
            if reason is not None:
                click.echo(f"      {'':<17} {reason}")
            if program.distributed:
                click.echo(f"      {'':<17} on several ranks: mpirun -n 2 collbench suite {name}, or torchrun")
            for axis in program.axes:
                click.echo(f"      {'':<17} {axis.name}={axis.neutral}: {axis.means}")
            if program.sizes:
                click.echo(f"      {'':<17} size={','.join(map(str, program.sizes))}")


def _programs(names: Sequence[str]) -> list[Program]:
    """The benchmarks that these names stand for, each once.

    Raises:
        RequestError: a name of neither a suite nor a benchmark; none at all.
    """
    suites = workloads.suites()
    if not names:
        raise RequestError(f"no benchmark is named. There are the suites {', '.join(suites)}: see collbench suite.")
    chosen: dict[str, None] = {}
    for name in names:
        if name not in suites and name not in workloads.names():
            known = (*suites, *workloads.names())
            raise RequestError(f"{name!r} is neither a suite nor a benchmark. {suggestion(name, known)}")
        chosen |= dict.fromkeys(suites.get(name, (name,)))
    return [workloads.get(name) for name in chosen]


def _parameters(programs: Sequence[Program], words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Values by parameter, as they were typed: `n` of all benchmarks that have it, `linpack.n` of one.

    Raises:
        RequestError: none of the benchmarks has the parameter, or it is given twice.
    """
    shared = dict.fromkeys(name for program in programs for name in parameters_of(program))
    known = (*shared, *(f"{program.name}.{name}" for program in programs for name in parameters_of(program)))
    values: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in known:
            named = ", ".join(program.name for program in programs)
            hint = suggestion(name, known if "." in name else tuple(shared))
            raise RequestError(f"{word}: {named} has no parameter {name!r}. {hint}")
        if name in values:
            both = ",".join((*values[name], text))
            raise RequestError(f"{word}: {name} is given twice. Write its values between commas: {name}={both}.")
        values[name] = tuple(text.split(","))
    return values


def _ambiguous(programs: Sequence[Program], asked: Iterable[str]) -> Iterator[str]:
    """A line for each parameter that means different things to the benchmarks to which it is given."""
    for name in asked:
        users: dict[str, list[str]] = {}
        for program in programs:
            for axis in program.axes:
                if axis.name == name:
                    users.setdefault(axis.means, []).append(program.name)
        if len(users) > 1:
            listed = "; ".join(f"{', '.join(own)}: {means}" for means, own in users.items())
            one = next(iter(users.values()))[0]
            yield f"{name} means different things ({listed}); {one}.{name}= is that of one benchmark"


def _with(program: Program, asked: Mapping[str, tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """The benchmark as a plan has it, with those of the parameters that it has; what is given to it alone counts more."""
    values = {name: asked.get(f"{program.name}.{name}", asked.get(name)) for name in parameters_of(program)}
    return {"name": program.name, **{name: own for name, own in values.items() if own is not None}}
