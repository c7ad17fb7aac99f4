"""`collbench model RUN...`: latency and bandwidth models of a run, and predictions for other ranks and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from collbench import collectives
from collbench.analysis.models import LinkSeries, Model, Unfit, model, series
from collbench.analysis.predictions import (
    COLLECTIVE,
    Prediction,
    PredictionQuestion,
    Refusal,
    TrainingStep,
    answers,
    training_steps,
)
from collbench.analysis.runs import Observed
from collbench.cli.analysing import COMPLETE, RUN, read_each, say, style
from collbench.errors import RequestError
from collbench.report.models import (
    Answers,
    brief,
    document,
    reason,
    sentence,
    step_cautions,
    step_grid,
    step_tables,
    tables,
    why_unfit,
)
from collbench.report.tables import Table
from collbench.units import parse_size

#: The most ranks in a prediction.
MOST_RANKS = 1 << 24

_POINT = re.compile(r"ranks\s*=\s*(?P<ranks>[0-9]{1,10})(?:\s*,\s*bytes\s*=\s*(?P<bytes>[^,=\s]+))?")

_EXAMPLE, _AGAIN = "Predict a point, such as ranks=64,bytes=1G", "Can be repeated."


@click.command(name="model")
@click.argument("runs", nargs=-1, type=RUN, required=True)
@click.option("--predict", "points", multiple=True, default=None, metavar="POINT", help=f"{_EXAMPLE}. {_AGAIN}")
@click.option(
    "--collective", "wanted", multiple=True, default=None, metavar="NAME", help=f"Only this collective. {_AGAIN}"
)
@click.option("--all", "every", is_flag=True, default=False, help="Every table, with all that must be known of them.")
@style
def command(runs: tuple[Path, ...], points: tuple[str, ...], wanted: tuple[str, ...], every: bool, style: str) -> None:
    """Fit latency, bandwidth and algorithm to a run, judge the fit, and predict: collbench model RUN.

    A run is a folder that --out or launch wrote, or a folder of such folders, each of them one launch. Several runs are
    modelled one after the other.
    """
    questions = [parse_point(text) for text in points]
    names = frozenset(collectives.get(name).name for name in wanted)
    shown: list[Table] = []
    documents = []
    for observed in read_each(runs):
        found, steps = _of_run(observed, names, questions)
        if style in COMPLETE:
            made = [*tables(found), *step_tables(steps)]
        elif every:
            made = [Table(sentence(found), (), ()), *tables(found, narrow=True), *step_tables(steps)]
        else:
            made = brief(found, step_grid(steps), step_cautions(steps))
        shown += [replace(one, title=f"{found.name}: {one.title}") for one in made] if len(runs) > 1 else made
        documents.append(document(found, steps))
    say(shown, {"runs": documents}, style)


def _of_run(
    observed: Observed, wanted: frozenset[str], questions: Sequence[PredictionQuestion]
) -> tuple[Answers, Sequence[TrainingStep]]:
    """What is known of a run (with `wanted`, of these collectives); refused where that is nothing."""
    fits = tuple(model(series) for series in _series(observed, wanted))
    if not any(isinstance(one, Model) for one in fits):
        reasons = _listed(why_unfit(one) for one in fits if isinstance(one, Unfit))
        raise RequestError(f"{observed.name}: nothing can be modelled.{reasons}")
    given = [answer for question in questions for answer in answers(observed, fits, question)]
    predictions = tuple(answer for answer in given if isinstance(answer, Prediction))
    refusals = tuple(answer for answer in given if isinstance(answer, Refusal))
    if questions and not predictions:
        missing = " --predict needs bytes=SIZE for collectives that move data."
        raise RequestError(f"{observed.name}: nothing can be predicted.{_listed(map(reason, refusals)) or missing}")
    simulated = any(manifest.simulated for manifest in observed.manifests)
    steps = training_steps(observed, fits) if not wanted or COLLECTIVE in wanted else ()
    return Answers(observed.name, fits, predictions, refusals, simulated), steps


def _series(observed: Observed, wanted: frozenset[str]) -> list[LinkSeries]:
    """Those of the collectives; of a run that has none those of its programs, which say why they have no model."""
    measured = {case.workload for case in observed.cells}
    for name in sorted(wanted - measured):
        raise RequestError(f"--collective {name}: not in {observed.name}, which has {', '.join(sorted(measured))}.")
    sized = {case: cell for case, cell in observed.cells.items() if case["backend"]}
    return series(replace(observed, cells=sized or observed.cells), wanted)


def _listed(reasons: Iterable[str]) -> str:
    """Each reason once, on a line of its own."""
    return "".join(f"\n  {reason}" for reason in dict.fromkeys(reasons))


def parse_point(text: str) -> PredictionQuestion:
    """The question of `ranks=64,bytes=1G`; without bytes it is for collectives that move no data.

    Raises:
        RequestError: not of this form, or out of range.
    """
    match = _POINT.fullmatch(text.strip())
    if match is None or not 2 <= int(match["ranks"]) <= MOST_RANKS:
        raise RequestError(f"--predict {text!r}: write ranks=64,bytes=1G, with 2 to {MOST_RANKS} ranks.")
    return PredictionQuestion(int(match["ranks"]), parse_size(match["bytes"]) if match["bytes"] else None)
