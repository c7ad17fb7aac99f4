"""What the commands that read runs have in common: options, reading runs, and printing tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from collbench.analysis.environment import unlike
from collbench.analysis.factors import normalised
from collbench.analysis.options import FACTORS
from collbench.analysis.runs import Observed, observe, refuse_same
from collbench.cli.terminal import PATH, harmless, waiting_for
from collbench.errors import RequestError
from collbench.report.caveats import flaw_text
from collbench.report.tables import FORMATS, Table
from collbench.schema.store import Margin, Margins, has_all_sizes
from collbench.units import parse_size

_Command = Callable[..., Any]

_PERCENT = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,10})?)\s*(%?)")

RUN = PATH

#: Styles for programs and for papers have every table, those for people begin with the answer.
COMPLETE = ("csv", "latex")

style = click.option(
    "--style",
    type=click.Choice([*FORMATS, "json"]),
    default="table",
    show_default=True,
    help="How to print it.",
)


class Share(click.ParamType[float]):
    """`2%` or `0.02`: a share, from 0 to below 100 %."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As a share."""
        if isinstance(value, float):
            return value
        match = _PERCENT.fullmatch(str(value).strip())
        share = float(match[1]) / (100 if match[2] else 1) if match else 1.0
        if share >= 1:
            self.fail(f"{value!r} is not a percentage from 0 to below 100. Write 2% or 0.02.", param, ctx)
        return share


class MarginsType(click.ParamType[Margins]):
    """`2%`, or by size `20%:1M,10%:64M,5%`; the last one is for all other sizes."""

    name = "PERCENT[:SIZE,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Margins:
        """As the gate takes them."""
        if isinstance(value, tuple):
            return value
        made = []
        for part in str(value).split(","):
            share, _, size = part.partition(":")
            try:
                largest = parse_size(size) if size else None
            except RequestError as error:
                self.fail(str(error), param, ctx)
            made.append(Margin(Share().convert(share, param, ctx), largest))
        if not has_all_sizes(tuple(made)):
            self.fail(f"{value!r} is not in the order of sizes, or its last part has one. Write 20%:1M,5%.", param, ctx)
        return tuple(made)


def typed_share(share: float) -> str:
    """As it can be typed: a percentage without an exponent."""
    return f"{share * 100:.10f}".rstrip("0").rstrip(".") + "%"


def typed_margins(margins: Margins) -> str:
    """As they can be typed."""
    return ",".join(typed_share(one.share) + (f":{one.largest}" if one.largest is not None else "") for one in margins)


def margin_option(default: str, says: str) -> Callable[[_Command], _Command]:
    """`--margin`, with what it means for a command."""
    return click.option("--margin", type=Share(), default=default, show_default=True, metavar="PERCENT", help=says)


margin = margin_option("5%", "Sides whose whole interval lies within it are the same.")

given = click.option(
    "--given",
    multiple=True,
    default=None,
    metavar="FACTOR=VALUE",
    help=f"What cannot be chosen, such as policy=single. Can be repeated. Factors: {', '.join(FACTORS)}.",
)

in_blocks = click.option(
    "--in-blocks",
    is_flag=True,
    default=False,
    help="The runs were measured alternately: launches of equal number are paired.",
)


def read(path: Path) -> Observed:
    """A run, or a folder of runs of which each is one launch of the same; what cannot be relied on goes to stderr.

    Raises:
        RunReadError: neither of them, or damaged.
        RequestError: the runs in the folder measured different things, or the same launches, or hold no records.
    """
    with waiting_for(f"reading {path}"):
        observed = observe(path)
    refuse_same([observed])
    apart = unlike(observed)
    if apart:
        listed = "".join(f"\n  {name}: {values}" for name, values in apart.items())
        raise RequestError(
            f"{path}: the runs in this folder are not launches of the same:{listed}\n"
            "Put each kind into a folder of its own, or name the runs one by one."
        )
    for flaw in observed.flaws:
        click.echo(f"collbench: {harmless(flaw_text(flaw))}.", err=True)
    if not observed.cells:
        raise RequestError(f"{path}: no records in it.")
    return observed


def read_each(paths: Sequence[Path]) -> list[Observed]:
    """As `read`, of several.

    Raises:
        RequestError: also where two of them hold the same launches.
    """
    observed = [read(path) for path in paths]
    refuse_same(observed)
    return observed


def names(texts: Sequence[str]) -> frozenset[str]:
    """Names of factors as typed: in several options, or with commas between them."""
    return frozenset(normalised(name.strip()) for text in texts for name in text.split(","))


def say(tables: Sequence[Table], document: Any, chosen: str) -> None:
    """Print tables in the chosen style, or the document as JSON. CSV has no room for notes: they go to stderr."""
    import msgspec

    text = FORMATS[chosen](tables) if chosen != "json" else msgspec.json.format(msgspec.json.encode(document)).decode()
    sys.stdout.write(harmless(text if text.endswith("\n") else text + "\n"))
    if chosen == "csv":
        for note in dict.fromkeys(note for table in tables for note in table.notes):
            click.echo(harmless(f"* {note}"), err=True)
