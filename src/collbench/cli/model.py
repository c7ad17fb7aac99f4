"""`collbench model RUN...`: latency and bandwidth models of a run, and predictions for other ranks and sizes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import click

from collbench import collectives
from collbench.analysis.models.predict import PredictionQuestion
from collbench.analysis.models.run_models import Modelled, modelled
from collbench.analysis.models.what_if import NetworkLink
from collbench.cli.analysing import RUN, read_each, say, style
from collbench.errors import RequestError
from collbench.report.models import document, tables
from collbench.report.tables import Table
from collbench.spelling import suggestion
from collbench.units import parse_duration, parse_size

#: The most ranks in a prediction.
MOST_RANKS = 1 << 24

_RATE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kKMGT]?)(B|bit|b)(?:/s|ps)")
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@click.command(name="model")
@click.argument("runs", nargs=-1, type=RUN, required=True)
@click.option(
    "--predict",
    "points",
    multiple=True,
    default=None,
    metavar="POINT",
    help="Predict a point, such as ranks=64,bytes=1G. Can be repeated.",
)
@click.option(
    "--link",
    default=None,
    metavar="LINK",
    help="What if: every algorithm over this link instead, such as latency=2us,bandwidth=12.5GB/s.",
)
@click.option(
    "--collective",
    "wanted",
    multiple=True,
    default=None,
    metavar="NAME",
    help="Only this collective. Can be repeated.",
)
@style
def command(
    runs: tuple[Path, ...], points: tuple[str, ...], link: str | None, wanted: tuple[str, ...], style: str
) -> None:
    """Fit latency, bandwidth and algorithm to a run, judge the fit, and predict: collbench model RUN.

    A run is a folder that --out or launch wrote, or a folder of such folders, each of them one launch. Several runs are
    modelled one after the other.
    """
    questions = [parse_point(text) for text in points]
    over = parse_link(link) if link is not None else None
    if over is not None and not questions:
        raise RequestError("--link needs a point to compute: add --predict ranks=64,bytes=1G.")
    names = frozenset(collectives.get(name).name for name in wanted)
    results = [modelled(observed, names, questions, over) for observed in read_each(runs)]
    say(_tables(results), {"runs": [document(result) for result in results]}, style)


def _tables(results: list[Modelled]) -> list[Table]:
    """The tables of every run; where there are several, each title begins with its run."""
    if len(results) == 1:
        return tables(results[0])
    return [replace(table, title=f"{result.name}: {table.title}") for result in results for table in tables(result)]


def parse_point(text: str) -> PredictionQuestion:
    """The question of `ranks=64,bytes=1G`; without bytes it is for collectives that move no data.

    Raises:
        RequestError: not of this form, or out of range.
    """
    example = "Write --predict ranks=64,bytes=1G."
    given = _pairs("--predict", text, ("ranks", "bytes"), example)
    if "ranks" not in given:
        raise RequestError(f"--predict {text!r}: lacks ranks. {example}")
    number = given["ranks"]
    if not number.isascii() or not number.isdigit() or len(number) > 10 or not 2 <= int(number) <= MOST_RANKS:
        raise RequestError(f"--predict {text!r}: ranks={number} is not a number from 2 to {MOST_RANKS}. {example}")
    return PredictionQuestion(int(number), parse_size(given["bytes"]) if "bytes" in given else None)


def parse_link(text: str) -> NetworkLink:
    """The link of `latency=2us,bandwidth=12.5GB/s`; bandwidth in bytes (GB/s) or bits (Gbit/s), powers of 1000.

    Raises:
        RequestError: not of this form, or a bandwidth of 0.
    """
    example = "Write --link latency=2us,bandwidth=12.5GB/s."
    given = _pairs("--link", text, ("latency", "bandwidth"), example)
    for name in ("latency", "bandwidth"):
        if name not in given:
            raise RequestError(f"--link {text!r}: lacks {name}. {example}")
    latency, bandwidth = given["latency"], _RATE.fullmatch(given["bandwidth"])
    if not latency.endswith("s"):
        raise RequestError(f"--link {text!r}: latency={latency} has no unit (ns, us, ms, s). {example}")
    if bandwidth is None:
        raise RequestError(f"--link {text!r}: bandwidth={given['bandwidth']} is not in GB/s, MB/s or Gbit/s. {example}")
    rate = float(bandwidth[1]) * _DECIMAL[bandwidth[2]] / (1 if bandwidth[3] == "B" else 8)
    if rate <= 0.0:
        raise RequestError(f"--link {text!r}: the bandwidth must be above 0. {example}")
    return NetworkLink(parse_duration(latency, "--link latency"), rate)


def _pairs(option: str, text: str, known: tuple[str, ...], example: str) -> dict[str, str]:
    """`a=1,b=2` as a dictionary of known names, each once."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise RequestError(f"{option} {text!r}: {part.strip()!r} is not name=value. {example}")
        if name not in known:
            raise RequestError(f"{option} {text!r}: {name!r} is unknown. {suggestion(name, known)} {example}")
        if name in values:
            raise RequestError(f"{option} {text!r}: {name} is given twice. {example}")
        values[name] = value
    return values
