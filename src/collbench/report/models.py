"""What `collbench model` prints: the answer and a grid, or every table, with training steps; and the same as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import to_builtins

from collbench.analysis.models import FEWEST_RANKS, FEWEST_SIZES, SHAPES, Fitted, LinkSeries, Model, Unfit, errors
from collbench.analysis.predictions import BACKENDS, COLLECTIVE, DTYPE, Prediction, Refusal, TrainingStep
from collbench.analysis.results import grouped, methods
from collbench.report.caveats import cautions, each_once
from collbench.report.headings import apart, heading, heading_key, image_and_place, operation, place_order, used_drivers
from collbench.report.headings import ranks as ranks_of
from collbench.report.numbers import between, change, format_rate, format_us, time_scale
from collbench.report.tables import INTERVAL, Table, more, terminal, without_empty
from collbench.units import counted, format_bytes, format_duration, format_size

#: Rows of a grid, lines of what could mislead and how wide they are, and collectives that a sentence names.
MOST_ROWS, MOST_LINES, WIDTH, MOST_NAMED = 16, 3, 98, 3

#: Columns whose common parts stand below a grid, with their unit.
_SAME = {"operation": "", "place": "", "transport": "", "ranks": " ranks", "size (B)": ""}
MODELS = ("operation", "place", "transport", "launches", "ranks", "sizes (B)", "algorithm", "latency (us)",
          "GB/s", "error (%)", "worst (%)", "error by ranks (%)", "worst by ranks (%)")  # fmt: skip
PREDICTIONS = ("operation", "place", "transport", "ranks", "size (B)", "algorithm", "predicted (us)", "predicted 95 %",
               "measured (us)", "standing")  # fmt: skip

#: Columns that only the whole tables have; some of them where a grid has no room.
_IF_WIDE = ("transport", "worst (%)", "algorithm")
_DETAIL = ("launches", "error by ranks (%)", "worst by ranks (%)", *_IF_WIDE)

_READING = "error: |predicted / measured - 1| at sizes held out; any: all algorithms fit"
_SEVERAL = "; ?: others do too"


@dataclass(frozen=True)
class Answers:
    """All that is known of a run, in the order it was measured. `simulated`: its times were generated."""

    name: str
    fits: tuple[Model | Unfit, ...]
    predictions: tuple[Prediction, ...]
    refusals: tuple[Refusal, ...]
    simulated: bool

    @property
    def models(self) -> list[Model]:
        return [fit for fit in self.fits if isinstance(fit, Model)]


def sentence(answers: Answers) -> str:
    """What the models say, and how well they fit."""
    pieces = [(model, piece) for model in answers.models for piece in model.fit.pieces]
    known = [both for model, piece in pieces if (both := errors(piece.inside(model.inner)))]
    medians = sorted(median for median, _ in known)
    span = " to ".join(dict.fromkeys(f"{share * 100:.0f}" for share in (*medians[:1], *medians[-1:])))
    worst = f"worst {max(worst for _, worst in known) * 100:.0f} %" if known else "errors not known"
    typical = f"typical error of {counted(len(answers.models), 'model')} {span} %, {worst}" if known else worst
    listed = list(dict.fromkeys(fit.series.case.workload for fit in answers.fits))
    names = ", ".join(listed) if len(listed) <= MOST_NAMED else f"{len(listed)} collectives"
    standings = [*(prediction.standing for prediction in answers.predictions), *("refused" for _ in answers.refusals)]
    if len(standings) == 1:
        only, value = answers.predictions[0], format_duration(answers.predictions[0].seconds)
        low, high = map(format_duration, only.interval or (only.seconds, only.seconds))
        ends = f" ({low.removesuffix(high[high.index(' ') :])} to {high})" if only.interval else ", no interval"
        return f"{operation(only.series.case)}, {_point(only)}: {value}{ends}, {only.standing}; {typical}"
    if standings:
        counts = ", ".join(f"{standings.count(name)} {name}" for name in dict.fromkeys(standings))
        return f"{len(standings)} predictions of {names}: {counts}; {typical}"
    return f"{names}: {typical}, at sizes held out of the fit"


def brief(answers: Answers, further: Sequence[Table] = (), also: Iterable[str] = ()) -> list[Table]:
    """The answer with the grid of what was asked; `further` grids; what could mislead, with what is known `also`."""
    grid = _cut(_answers(answers) if answers.predictions else _models(answers))
    shown = [replace(grid, title=sentence(answers)), *further]
    lines = [*_warnings(answers), *also]
    short = (line if len(line) <= WIDTH else re.sub(r" \([^()]*\)$", "", line) for line in lines[:MOST_LINES])
    left = more(len(lines) - MOST_LINES, "more, and every table: --all")
    notes = (*shown[-1].notes, *short, *left, *_next(answers))  # of long lines not what they are true of
    return [*shown[:-1], replace(shown[-1], notes=notes)]


def tables(answers: Answers, narrow: bool = False) -> list[Table]:
    """Models and predictions, with every note; if `narrow`, what all rows have in common stands below."""
    models, of_answers = _models(answers), _answers(answers)
    shown = [replace(models, notes=(*models.notes, *_warnings(answers))), *([of_answers] if of_answers.rows else [])]
    return [replace(_apart(table), title=table.title) for table in shown] if narrow else shown


def _cut(table: Table) -> Table:
    grid = _apart(replace(table, rows=table.rows[:MOST_ROWS]))
    for name in _DETAIL:
        if name not in _IF_WIDE or max(map(len, terminal([replace(grid, notes=())]).splitlines())) > WIDTH:
            kept = {head: cells for head, cells in grid.by_column.items() if head != name}
            grid = Table.of("", kept, grid.notes)
    return replace(grid, notes=(*grid.notes, *more(len(table.rows) - MOST_ROWS, "more rows: --all")))


def _apart(table: Table) -> Table:
    """What all rows have in common stands in a note, no longer in the rows."""
    columns, common = {}, []
    for name, cells in table.by_column.items():
        whole = [[cell] for cell in cells]
        parts, shared = apart([cell.split(", ") for cell in cells]) if name in _SAME else (whole, [])
        columns[name] = [", ".join(words).replace(" .. ", " to ") for words in parts]
        common += [f"{', '.join(filter(None, shared))}{_SAME[name]}"] if any(shared) else []
    return Table.of("", columns, (*filter(None, [", ".join(common)]), *table.notes))


def _models(answers: Answers) -> Table:
    rows = []
    for model in sorted(answers.models, key=_order):
        series, several = model.series, len(SHAPES[model.series.case.workload]) > 1
        for piece in model.fit.pieces:
            any_fits, beta = len(series.ranks) == 1 and several, piece.fitted.beta
            rows.append((
                *_where(series), str(series.launches), ", ".join(map(str, series.ranks)),
                f"{format_size(piece.low)} .. {format_size(piece.high)}" if series.sized else "",
                "any" if any_fits else piece.fitted.shape.name + " ?" * bool(piece.rivals),
                format_us(piece.fitted.alpha),
                (format_rate(1e-9 / beta) if beta > 0 else "free") if series.sized else "",  # bytes add no time
                *(f"{share * 100:.1f}" if share is not None else "" for misses in (model.inner, model.by_ranks)
                  for share in errors(piece.inside(misses)) or (None, None)),
            ))  # fmt: skip
    rivals = any(piece.rivals for model in answers.models for piece in model.fit.pieces)
    return without_empty(Table("models", MODELS, tuple(rows), (_READING + _SEVERAL * rivals,)))


def _answers(answers: Answers) -> Table:
    rows = []
    every: list[Prediction | Refusal] = [*answers.predictions, *answers.refusals]
    for answer in sorted(every, key=_order):
        series, size = answer.series, format_size(answer.question.size or 0) if answer.series.sized else ""
        point = (*_where(series), str(answer.question.ranks), size)
        if isinstance(answer, Refusal):
            rows.append((*point, "", "", "", "", "refused"))
            continue
        measured = "" if answer.measured is None else format_us(answer.measured)
        rows.append((*point, answer.fitted.shape.name, format_us(answer.seconds),
                     between(answer.interval or (), format_us), measured, answer.standing))  # fmt: skip
    return without_empty(Table("predictions", PREDICTIONS, tuple(rows)))


def _order(result: Model | Unfit | Prediction | Refusal) -> tuple[object, ...]:
    series = result.series
    return (heading_key(series.case), series.case.where.image or "", place_order(series.case.where), series.transport)


def _where(series: LinkSeries) -> tuple[str, str, str]:
    operation_name = heading(series.case, used_drivers(series.cells), with_ranks=False)
    return operation_name, image_and_place(series.case), series.transport


def _point(answer: Prediction | Refusal) -> str:
    size = f", {format_size(answer.question.size or 0)}" if answer.series.sized else ""
    return f"{answer.question.ranks} ranks{size}"


def _warnings(answers: Answers) -> list[str]:
    """What could mislead, the gravest first, each line once with what it is true of."""
    lines: list[tuple[str, str]] = []
    for answer in answers.predictions:
        wrong = ["contradicted: the measured median is outside of the interval"] * (answer.standing == "contradicted")
        lines += [(line, _point(answer)) for line in (*wrong, *remarks(answer))]
    lines += [(f"refused: {reason(refusal)}", _point(refusal)) for refusal in answers.refusals]
    for fitted in answers.fits:
        why = [f"no model: {why_unfit(fitted)}"] if isinstance(fitted, Unfit) else _left_out(fitted.series)
        lines += [(line, " ".join(_where(fitted.series)[1:]).strip()) for line in why]
    used = [cell for fit in answers.fits for cell in fit.series.cells]
    warnings = ["simulated: these times were not measured"] * answers.simulated + each_once(lines, "; ")
    if any(model.series.launches == 1 for model in answers.models):
        warnings.append("one launch: intervals do not include differences between launches")
    if "streaming" in methods(used).get("cadence", ()):
        warnings.append("cadence streaming: operations overlap, so a latency is what one more operation adds")
    return [*warnings, *cautions(used)]


def remarks(prediction: Prediction) -> list[str]:
    """What a reader of a prediction must know."""
    series, ranks, lines = prediction.series, prediction.question.ranks, []
    known = f"{', '.join(map(str, series.ranks))} ranks measured"
    growth = series.unknown_growth(ranks)
    if growth is not None:
        needs = f"other ranks need {FEWEST_RANKS} measured rank counts, and there are"
        why = {"far": "too far from the", "few": needs, "folded": "algorithms have other steps off powers of two;"}
        lines.append(f"no interval: {why[growth]} {known}")
    elif prediction.interval is not None and ranks not in series.ranks and prediction.pieces[0].rivals:
        names = ", ".join(rival.shape.name for rival in prediction.pieces[0].rivals)
        lines.append(f"the interval covers {names} too, as likely")
    smallest, largest = series.known_sizes(ranks)
    if series.sized and not smallest <= (prediction.question.size or 0) <= largest:
        lines.append(f"no interval: beyond the sizes measured, {format_size(smallest)} to {format_size(largest)}")
    elif prediction.interval is not None and len(prediction.pieces) > 1:
        low, high = min(piece.high for piece in prediction.pieces), max(piece.low for piece in prediction.pieces)
        lines.append(f"the interval covers both models, up to {format_size(low)} and from {format_size(high)}")
    return lines


def why_unfit(unfit: Unfit) -> str:
    """What a series lacks for a model."""
    series, name = unfit.series, unfit.series.case.workload
    if unfit.why == "program":
        return (f"{name} is a program; what is modelled are collectives ({', '.join(SHAPES)}), and from all-reduces at "
                "the same place the communication of ddp")  # fmt: skip
    if unfit.why == "no algorithms":
        return f"no algorithms of {name} are known; known are those of {', '.join(SHAPES)}"
    if unfit.why == "no points":
        return "; ".join(("no cell was measured that says something about a link", *_left_out(series)))
    if unfit.why == "few ranks":
        return f"{', '.join(map(str, series.ranks))} ranks measured; at least {FEWEST_RANKS} rank counts are needed"
    listed = f"{counted(len(series.sizes), 'size')} measured ({', '.join(map(format_size, series.sizes))})"
    return f"{listed}; at least {FEWEST_SIZES} are needed, better 8: collbench {name} -b 8 -e 4M -f 4"


def reason(refusal: Refusal) -> str:
    if refusal.most is not None:
        return f"the one host measured has cores for {refusal.most} ranks, and no network was measured"
    return why_unfit(refusal.unfit) if isinstance(refusal.unfit, Unfit) else ""


def _left_out(series: LinkSeries) -> list[str]:
    every = counted(len(series.left_out) + len(series.cells), "cell")
    return [f"left out: {series.left_out.count(why)} of {every}: {why}" for why in dict.fromkeys(series.left_out)]


def _next(answers: Answers) -> list[str]:
    """The command that tells most: to measure what has no interval, or to predict."""
    for prediction in answers.predictions:
        if prediction.interval is None and prediction.series.case.where.on_host:
            size = f" -b {format_size(prediction.question.size or 0)} -e {format_size(prediction.question.size or 0)}"
            command = f"mpirun -n {prediction.question.ranks} collbench {prediction.series.case.workload}"
            return [f"next: measure it: {command}{size if prediction.series.sized else ''}"]
    if answers.predictions or not answers.models:
        return []
    series = answers.models[0].series
    size = f",bytes={format_size(series.sizes[-1] * 3 // 4)}" if series.sized else ""
    return [f"next: collbench model {answers.name} --predict ranks={series.ranks[-1]}{size}"]


def document(answers: Answers, steps: Sequence[TrainingStep]) -> dict[str, Any]:
    """Everything of one run; seconds and bytes, null where there is none."""

    def entry(item: Model | Unfit | Prediction | Refusal) -> dict[str, Any]:
        return {"case": to_builtins(item.series.case), "transport": item.series.transport or None}

    def point(answer: Prediction | Refusal) -> dict[str, Any]:
        return {**entry(answer), "ranks": answer.question.ranks, "bytes": answer.question.size}

    return {
        "run": answers.name, "simulated": answers.simulated, "answer": sentence(answers),
        "models": [
            {**entry(model), "launches": model.series.launches, "ranks": model.series.ranks,
             "sizes": model.series.sizes, "left_out": _left_out(model.series),
             "pieces": [
                 {"low": piece.low, "high": piece.high, **_fitted_entry(piece.fitted),
                  "as_likely": list(map(_fitted_entry, piece.rivals))}
                 for piece in model.fit.pieces
             ],
             "held_out": to_builtins(model.sizes), "ranks_held_out": to_builtins(model.by_ranks)}
            for model in answers.models
        ],
        "not_modelled": [{**entry(fit), "why": why_unfit(fit)} for fit in answers.fits if isinstance(fit, Unfit)],
        "predictions": [
            {**point(prediction), **_fitted_entry(prediction.fitted), "seconds": prediction.seconds,
             "interval": prediction.interval, "standing": prediction.standing,
             "remarks": remarks(prediction), "measured": prediction.measured}
            for prediction in answers.predictions
        ],
        "refused": [{**point(refusal), "why": reason(refusal)} for refusal in answers.refusals],
        "steps": list(map(step_entry, steps)),
    }  # fmt: skip


def _fitted_entry(fitted: Fitted) -> dict[str, Any]:
    return {"algorithm": fitted.shape.name, "alpha": fitted.alpha, "beta": fitted.beta}


# Training steps.

#: More messages than this are not all named; more places than these are rows of a grid.
MOST_MESSAGES, MOST_PLACES = 8, 5

#: What the columns mean.
_STEPS = ("predicted: the model's time of all these all-reduces, one after the other; alone: the same, measured; not "
          "hidden: the step less the same step without them; error: predicted / not hidden - 1; hidden: 1 - not "
          "hidden / alone")  # fmt: skip


def step_grid(steps: Sequence[TrainingStep]) -> list[Table]:
    """A row for each training with a column for each place; of many places a row for each. None without steps."""
    groups = _trainings(steps)
    names, shared = apart([[*operation(group[0].case).split(", "), ranks_of(group[0].case)] for group in groups])
    places = list(dict.fromkeys(image_and_place(step.case) for group in groups for step in group))
    rows: list[tuple[str, ...]] = []
    for group, words in zip(groups, names, strict=True):
        name = ", ".join(part.removeprefix("network ") for part in (shared if len(groups) == 1 else words))
        texts = {}
        for step in group:  # `46.5 ms, +20 %`
            miss = "" if step.error is None else f", {change(1 + step.error)}"
            time = "-" if step.communication is None else f"{format_duration(step.communication)}{miss}"
            texts[image_and_place(step.case)] = time
        across = (name, *(texts.get(place, "-") for place in places))
        rows += [across] if len(places) <= MOST_PLACES else [(name, *item) for item in texts.items()]
    columns = tuple(places) if len(places) <= MOST_PLACES else ("place", "predicted")
    left = more(len(rows) - MOST_ROWS, "more rows: --all")
    title = f"all-reduces of a step of {', '.join(shared)}: predicted, and its error beside what was not hidden"
    return [Table(title, ("training", *columns), tuple(rows[:MOST_ROWS]), tuple(left))] if groups else []


def step_tables(steps: Sequence[TrainingStep]) -> list[Table]:
    """For each training predicted and measured communication, by place."""
    return [_accuracy(group) for group in _trainings(steps)]


def step_entry(step: TrainingStep) -> dict[str, Any]:
    """Seconds and bytes, null where there is none."""
    times = step.times
    return {
        "case": to_builtins(step.case), "messages": step.messages, "predicted": step.communication,
        "interval": step.interval, "why": _unpredicted(step) or _lost(step) or None, "error": step.error,
        "step": times and times.step.value, "compute": times and times.compute.value,
        "not_hidden": times and times.exposed.value, "not_hidden_interval": times and times.exposed.interval,
        "alone": times and times.alone and times.alone.value, "hidden": times and times.hidden,
    }  # fmt: skip


def _trainings(steps: Sequence[TrainingStep]) -> list[list[TrainingStep]]:
    """Steps that differ in the place alone, in the order of places; trainings in the order of the run."""
    place = ("engine", "image", "policy", "isolation", "affinity", "seccomp")
    by_training = grouped((step.case.without(place), step) for step in steps)
    return [sorted(group, key=lambda step: place_order(step.case.where)) for group in by_training.values()]


def _accuracy(group: Sequence[TrainingStep]) -> Table:
    entries = [step_entry(step) for step in group]
    shown = [entry[name] for entry in entries for name in ("not_hidden", "alone", "predicted")]
    scale = time_scale(value for value in shown if value is not None)

    def column(name: str, form: Callable[[Any], str]) -> list[str]:
        return ["" if entry[name] is None else form(entry[name]) for entry in entries]

    def percent(share: float) -> str:
        return f"{share * 100:+.0f}"

    columns = {"place": [image_and_place(step.case) for step in group],
               scale.heading("predicted"): column("predicted", scale.text),
               f"predicted{INTERVAL}": column("interval", lambda ends: between(ends, scale.text)),
               scale.heading("alone"): column("alone", scale.text),
               scale.heading("not hidden"): column("not_hidden", scale.text),
               f"not hidden{INTERVAL}": column("not_hidden_interval", lambda ends: between(ends, scale.text)),
               "error (%)": column("error", percent), "hidden (%)": column("hidden", percent)}  # fmt: skip
    notes = [_messages(messages) for messages in dict.fromkeys(step.messages for step in group)]
    title = f"communication of {operation(group[0].case)}, {ranks_of(group[0].case)}"
    return Table.of(title, columns, dict.fromkeys((*notes, _STEPS, *step_cautions(group))))


def step_cautions(group: Sequence[TrainingStep]) -> list[str]:
    """Why there is no prediction, and what a reader of one must know, with the places."""
    return each_once((line, image_and_place(step.case)) for step in group
                     for line in (*[f"not predicted: {_unpredicted(step)}"] * bool(step.why),
                                  *[f"not compared: {_lost(step)}"] * bool(step.lost),
                                  *(line for prediction in step.predictions
                                    for line in remarks(prediction))))  # fmt: skip


def _unpredicted(step: TrainingStep) -> str:
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
    named = ", ".join(map(format_bytes, messages[:MOST_MESSAGES])) + ", ..." * (len(messages) > MOST_MESSAGES)
    number = counted(len(messages), "all-reduce")
    return f"{number} a step, in their order: {named}; {format_bytes(sum(messages))} in all"
