"""`collbench model RUN...`: latency and bandwidth models of a run, and predictions for other ranks and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from collbench import collectives
from collbench.analysis.models.model import Model, Series, Unfit, model, series
from collbench.analysis.models.predict import (
    NetworkLink,
    Prediction,
    PredictionQuestion,
    Refusal,
    WhatIf,
    answers,
    what_if,
)
from collbench.analysis.models.shapes import SHAPES
from collbench.analysis.models.steps import COLLECTIVE, TrainingStep, training_steps
from collbench.analysis.observations import Observed
from collbench.cli.analysing import COMPLETE, RUN, read_each, say, style
from collbench.errors import RequestError
from collbench.report.models import Answers, brief, document, reason, sentence, tables, why_unfit
from collbench.report.tables import Table
from collbench.report.training_steps import accuracy_tables, brief_grid, cautions, step_entry
from collbench.spelling import suggestion
from collbench.units import parse_duration, parse_size

#: The most ranks in a prediction.
MOST_RANKS = 1 << 24

_RATE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kKMGT]?)(B|bit|b)(?:/s|ps)")
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

_POINT = "Predict a point, such as ranks=64,bytes=1G. Can be repeated."
_LINK = "What if: every algorithm over this link instead, such as latency=2us,bandwidth=12.5GB/s."


@click.command(name="model")
@click.argument("runs", nargs=-1, type=RUN, required=True)
@click.option("--predict", "points", multiple=True, default=None, metavar="POINT", help=_POINT)
@click.option("--link", default=None, metavar="LINK", help=_LINK)
@click.option(
    "--collective", "wanted", multiple=True, default=None, metavar="NAME", help="Only this collective. Can be repeated."
)
@click.option("--all", "every", is_flag=True, default=False, help="Every table, with all that must be known of them.")
@style
def command(
    runs: tuple[Path, ...], points: tuple[str, ...], link: str | None, wanted: tuple[str, ...], every: bool, style: str
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
    shown: list[Table] = []
    documents = []
    for observed in read_each(runs):
        found, steps = _of_run(observed, names, questions, over)
        if every or style in COMPLETE:
            answer = [] if style in COMPLETE else [Table(sentence(found), (), ())]
            made = [*answer, *tables(found), *accuracy_tables(steps)]
        else:
            made = brief(found, brief_grid(steps), cautions(steps))
        shown += [replace(one, title=f"{found.name}: {one.title}") for one in made] if len(runs) > 1 else made
        documents.append(document(found, [step_entry(step) for step in steps]))
    say(shown, {"runs": documents}, style)


def _of_run(
    observed: Observed, wanted: frozenset[str], questions: Sequence[PredictionQuestion], link: NetworkLink | None
) -> tuple[Answers, Sequence[TrainingStep]]:
    """What is known of a run (with `wanted`, of these collectives); refused where that is nothing."""
    fits = tuple(model(series) for series in _series(observed, wanted))
    if link is None and not any(isinstance(one, Model) for one in fits):
        reasons = _listed(why_unfit(one) for one in fits if isinstance(one, Unfit))
        raise RequestError(f"{observed.name}: nothing can be modelled.{reasons}")
    given = [answer for question in questions for answer in answers(observed, fits, question)]
    predictions = tuple(answer for answer in given if isinstance(answer, Prediction))
    refusals = tuple(answer for answer in given if isinstance(answer, Refusal))
    what_ifs = tuple(_what_ifs(fits, questions, link)) if link else ()
    if questions and not predictions and not what_ifs:
        missing = " --predict needs bytes=SIZE for collectives that move data."
        raise RequestError(f"{observed.name}: nothing can be predicted.{_listed(map(reason, refusals)) or missing}")
    simulated = any(manifest.simulated for manifest in observed.manifests)
    steps = training_steps(observed, fits) if not wanted or COLLECTIVE in wanted else ()
    return Answers(observed.name, fits, predictions, refusals, what_ifs, simulated), steps


def _series(observed: Observed, wanted: frozenset[str]) -> list[Series]:
    """Those of the collectives; of a run that has none those of its programs, which say why they have no model."""
    measured = {case.workload for case in observed.cells}
    for name in sorted(wanted - measured):
        raise RequestError(f"--collective {name}: not in {observed.name}, which has {', '.join(sorted(measured))}.")
    sized = {case: cell for case, cell in observed.cells.items() if case["backend"]}
    return series(replace(observed, cells=sized or observed.cells), wanted)


def _listed(reasons: Iterable[str]) -> str:
    """Each reason once, on a line of its own."""
    return "".join(f"\n  {reason}" for reason in dict.fromkeys(reasons))


def _what_ifs(
    fits: Sequence[Model | Unfit], questions: Sequence[PredictionQuestion], link: NetworkLink
) -> Iterable[WhatIf]:
    by_name: dict[str, list[Model | Unfit]] = {}
    for one in fits:
        by_name.setdefault(one.series.case.workload, []).append(one)
    for name, own in by_name.items():
        sized = any(one.series.sized for one in own)
        for question in questions:
            if name in SHAPES and (question.size is not None or not sized):
                yield what_if(name, [one for one in own if isinstance(one, Model)], question, link)


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
