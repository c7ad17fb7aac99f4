"""Training steps as tables and JSON: predicted and measured communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from collbench.analysis.models.predict import Refusal
from collbench.analysis.models.steps import BACKENDS, COLLECTIVE, DTYPE, TrainingStep, training_of
from collbench.report.caveats import each_once
from collbench.report.headings import apart, operation, place_order, ranks
from collbench.report.models import MOST_ROWS, reason, remarks
from collbench.report.numbers import between, change, time_scale
from collbench.report.tables import INTERVAL, Table
from collbench.schema.case import Case
from collbench.units import counted, format_bytes, format_duration

#: More messages than this are not all named; more places than these are rows of a grid.
MOST_NAMED, MOST_PLACES = 8, 5

#: What the columns mean.
_READING = ("predicted: the model's time of all these all-reduces, one after the other; alone: the same, measured; not "
            "hidden: the step less the same step without them; error: predicted / not hidden - 1; hidden: 1 - not "
            "hidden / alone")  # fmt: skip


def brief_grid(steps: Sequence[TrainingStep]) -> list[Table]:
    """A row for each training with a column for each place; of many places a row for each. None without steps."""
    groups = _trainings(steps)
    names, shared = apart([[*operation(group[0].case).split(", "), ranks(group[0].case)] for group in groups])
    places = list(dict.fromkeys(_place(step) for group in groups for step in group))
    rows: list[tuple[str, ...]] = []
    for group, own in zip(groups, names, strict=True):
        name = ", ".join(part.removeprefix("network ") for part in (shared if len(groups) == 1 else own))
        cells = {_place(step): _cell(step) for step in group}
        across = (name, *(cells.get(place, "-") for place in places))
        rows += [across] if len(places) <= MOST_PLACES else [(name, *item) for item in cells.items()]
    columns = tuple(places) if len(places) <= MOST_PLACES else ("place", "predicted")
    left = [f"{len(rows) - MOST_ROWS} more rows: --all"] if len(rows) > MOST_ROWS else []
    title = f"all-reduces of a step of {', '.join(shared)}: predicted, and its error beside what was not hidden"
    return [Table(title, ("training", *columns), tuple(rows[:MOST_ROWS]), tuple(left))] if groups else []


def _cell(step: TrainingStep) -> str:
    """`46.5 ms, +20 %`."""
    if step.communication is None:
        return "-"
    miss = "" if step.error is None else f", {change(1 + step.error)}"
    return f"{format_duration(step.communication)}{miss}"


def accuracy_tables(steps: Sequence[TrainingStep]) -> list[Table]:
    """For each training predicted and measured communication, by place."""
    return [_accuracy(group) for group in _trainings(steps)]


def step_entry(step: TrainingStep) -> dict[str, Any]:
    """Seconds and bytes, null where there is none."""
    times = step.times
    return {
        "case": msgspec.to_builtins(step.case), "messages": step.messages, "predicted": step.communication,
        "interval": step.interval, "why": why(step) or _lost(step) or None, "error": step.error,
        "step": times and times.step.value, "compute": times and times.compute.value,
        "not_hidden": times and times.exposed.value, "not_hidden_interval": times and times.exposed.interval,
        "alone": times and times.alone and times.alone.value, "hidden": times and times.hidden,
    }  # fmt: skip


def _trainings(steps: Sequence[TrainingStep]) -> list[list[TrainingStep]]:
    """Steps that differ in the place alone, in the order of places; trainings in the order of the run."""
    first: dict[Case, int] = {}
    for step in steps:
        first.setdefault(training_of(step.case), len(first))
    ordered = sorted(steps, key=lambda step: (first[training_of(step.case)], place_order(step.case)))
    return [list(group) for _, group in groupby(ordered, key=lambda step: first[training_of(step.case)])]


def _accuracy(group: Sequence[TrainingStep]) -> Table:
    entries = [step_entry(step) for step in group]
    shown = [entry[name] for entry in entries for name in ("not_hidden", "alone", "predicted")]
    scale = time_scale(value for value in shown if value is not None)

    def column(name: str, form: Callable[[Any], str]) -> list[str]:
        return ["" if entry[name] is None else form(entry[name]) for entry in entries]

    columns = {
        "place": list(map(_place, group)),
        scale.heading("predicted"): column("predicted", scale.text),
        f"predicted{INTERVAL}": column("interval", lambda ends: between(ends, scale.text)),
        scale.heading("alone"): column("alone", scale.text),
        scale.heading("not hidden"): column("not_hidden", scale.text),
        f"not hidden{INTERVAL}": column("not_hidden_interval", lambda ends: between(ends, scale.text)),
        "error (%)": column("error", _percent),
        "hidden (%)": column("hidden", _percent),
    }
    notes = [_messages(messages) for messages in dict.fromkeys(step.messages for step in group)]
    title = f"communication of {operation(group[0].case)}, {ranks(group[0].case)}"
    lines = dict.fromkeys((*notes, _READING, *cautions(group)))
    return Table.of(title, columns, lines)


def _place(step: TrainingStep) -> str:
    return f"{step.case.where.image or ''} {step.case.where.text}".strip()


def _percent(share: float) -> str:
    return f"{share * 100:+.0f}"


def cautions(group: Sequence[TrainingStep]) -> list[str]:
    """Why there is no prediction, and what a reader of one must know, with the places."""
    return each_once(
        (line, _place(step))
        for step in group
        for line in (
            *[f"not predicted: {why(step)}"] * bool(step.why), *[f"not compared: {_lost(step)}"] * bool(step.lost),
            *(line for one in step.predictions for line in remarks(one)),
        )
    )  # fmt: skip


def why(step: TrainingStep) -> str:
    """Why nothing is predicted; empty where something is."""
    if isinstance(step.why, Refusal):
        return reason(step.why)
    library = BACKENDS.get(step.case["device"] or "cpu", "")
    return {
        None: "", "messages differ": "its launches had different messages",
        "no all-reduces": f"no {COLLECTIVE} of {DTYPE} by {library} was measured at this place",
    }[step.why]  # fmt: skip


def _lost(step: TrainingStep) -> str:
    if step.lost == "waited":
        return "tasks waited for a CPU in every launch"
    return f"{' and '.join(step.lost)} was not measured" if step.lost else ""


def _messages(messages: Sequence[int]) -> str:
    """`2 all-reduces a step, in their order: 1.20 MiB, 2.06 MiB; 3.26 MiB in all`."""
    if not messages:
        return "its all-reduces are not known"
    named = ", ".join(map(format_bytes, messages[:MOST_NAMED])) + ", ..." * (len(messages) > MOST_NAMED)
    number = counted(len(messages), "all-reduce")
    return f"{number} a step, in their order: {named}; {format_bytes(sum(messages))} in all"
