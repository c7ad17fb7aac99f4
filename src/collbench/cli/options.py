"""The flags that several commands share. Letters are those of nccl-tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from collbench.cli.terminal import PATH
from collbench.report import STYLES
from collbench.schema.axes import AXES, Choice, choices_of
from collbench.schema.case import CADENCES, GATES

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

SIZES = (
    click.option("-b", "--minbytes", default="8", show_default=True, metavar="SIZE", help="Smallest size (8, 64K, 1M, 1G: powers of 1024)."),
    click.option("-e", "--maxbytes", default=None, metavar="SIZE", help="Largest size.  [default: 4M, or -b if larger]"),
    click.option("-f", "--stepfactor", type=int, default=None, metavar="N", help="Multiply the size by N each step.  [default: 2]"),
    click.option("-i", "--stepbytes", default=None, metavar="SIZE", help="Add SIZE each step instead."),
)  # fmt: skip

SAMPLES = (
    click.option("-n", "--iters", type=int, default=None, metavar="N", help="Exactly N samples a size, instead of a time budget."),
    click.option("-w", "--warmup_iters", "warmup", type=int, default=5, show_default=True, metavar="N", help="Operations before the first sample."),
    click.option("-c", "--check", type=click.IntRange(0, 1), default=1, show_default=True, metavar="0|1", help="Compare results with the collective's meaning, before and after timing."),
    click.option("-z", "--blocking", type=click.IntRange(0, 1), default=None, metavar="0|1", help="1: cadence isolated; 0: streaming."),
    click.option("--gate", type=click.Choice(["auto", *GATES]), default="auto", show_default=True, help="How ranks are lined up before a sample."),
    click.option("--cadence", type=click.Choice(CADENCES), default=None, help="Each operation on its own, or back to back.  [default: isolated]"),
    click.option("--burst", type=int, default=20, show_default=True, metavar="N", help="Operations of a sample in cadence streaming."),
    click.option("--budget", default="0.25s", show_default=True, metavar="TIME", help="Time for the samples of one size."),
    click.option("--floor", type=int, default=20, show_default=True, metavar="N", help="Samples a size at least, whatever the budget."),
    click.option("--cap", type=int, default=10_000, show_default=True, metavar="N", help="Samples a size at most, within the budget."),
)  # fmt: skip

DEVICE = (
    click.option("--device", type=click.Choice(["cpu", "gpu"]), default=None, help="Where the data lives.  [default: where the backend has it, cpu without one]"),
    click.option("--share-gpu", is_flag=True, help="Let several ranks use one GPU: tests of function, no measurement."),
)  # fmt: skip

OUTPUT = (
    click.option("--style", type=click.Choice(list(STYLES)), default="table", show_default=True, help="How results are printed."),
    click.option("--out", type=PATH, default=None, metavar="DIR", help="Keep the run: manifest, records, every sample."),
    click.option("-J", "--output_file", type=PATH, default=None, metavar="FILE", help="Write the json document to FILE too."),
)  # fmt: skip

WORLD = (
    click.option("-T", "--timeout", default="300s", show_default=True, metavar="TIME", help="Longest time without progress; then every rank leaves with code 3."),
    click.option("--ranks", type=int, default=None, metavar="N", help="Ranks of the fake backend.  [default: 4]"),
    click.option("--fault", default=None, metavar="KIND:RANK[@N]", help="Fake backend only: corrupt, raise or hang in a rank's N-th operation."),
)  # fmt: skip


def of_axes() -> tuple[Option, ...]:
    """A flag for each axis that has one, in the order of the table; the parameter is named as the axis."""
    return tuple(_option(axis, choice) for axis, choice in choices_of("what", "how").items() if choice.flag is not None)


def _option(axis: str, choice: Choice) -> Option:
    flag = choice.flag
    assert flag is not None
    kind = click.Choice(list(flag.words)) if flag.words else choice.of or AXES[axis].of
    text = f"{flag.help}  [default: {flag.default}]" if flag.default else flag.help
    alone: dict[str, Any] = {} if flag.alone is None else {"is_flag": False, "flag_value": flag.alone}
    return click.option(*flag.spelled, axis, type=kind, default=choice.typed, show_default=True, metavar=flag.metavar,
                        help=text, **alone)  # fmt: skip


def flags(*groups: tuple[Option, ...]) -> Callable[[Command], Command]:
    """A decorator that adds groups of options, in reading order."""

    def decorate(command: Command) -> Command:
        for group in reversed(groups):
            for option in reversed(group):
                command = option(command)
        return command

    return decorate
