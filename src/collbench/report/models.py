"""What `collbench model` prints: models, predictions and training steps as tables and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate
from collbench.analysis.models.fit import Fitted, Piece
from collbench.analysis.models.predict import Prediction, PredictionQuestion, Refusal
from collbench.analysis.models.run_models import Modelled
from collbench.analysis.models.series import Series
from collbench.analysis.models.steps import StepTimes, TrainingStep, training_of
from collbench.analysis.models.validation import HeldOutError, Model, Unfit, errors
from collbench.analysis.models.what_if import Supposed, WhatIf
from collbench.analysis.observations import methods
from collbench.report.cells import SIGNS, cautions, times
from collbench.report.headings import heading, heading_key, operation, place_order, ranks
from collbench.report.scales import Scale, time_scale
from collbench.report.style import format_rate, format_us
from collbench.report.tables import Table, without_empty
from collbench.schema.case import Case
from collbench.units import counted, format_bytes, format_duration, format_size

#: More messages than this are not all named.
MOST_NAMED = 8

#: What the columns mean.
_READING = ("predicted: the model's time of all these all-reduces, one after the other; alone: the same, measured; not "
            "hidden: the step less the same step without them; error: predicted / not hidden - 1; hidden: 1 - not "
            "hidden / alone")  # fmt: skip
_COSTS = "predicted: computing as measured there, and all-reduces as modelled there, of which none is hidden"
_SIGNS = "=: the same within the margin; ?: unclear"

Tabulated = Callable[[Sequence[TrainingStep]], Table]


def accuracy_tables(steps: Sequence[TrainingStep]) -> list[Table]:
    """For each training predicted and measured communication, by place."""
    return [_accuracy(group) for group in _trainings(steps)]


def cost_tables(steps: Sequence[TrainingStep], costs: Mapping[Case, Comparison]) -> list[Table]:
    """For each training the step at every place, measured and predicted; none for one measured at a single place.

    `costs` are those of `step_costs`.
    """
    return [_costs(group, costs) for group in _trainings(steps) if len(group) > 1]


def cost_entry(step: TrainingStep, costs: Mapping[Case, Comparison]) -> dict[str, Any]:
    """`step_entry`, with what the place costs the step: null for the fastest, and where it was not measured."""
    cost = costs.get(step.case)
    ratio = None if cost is None else cost.ratio
    return step_entry(step) | {
        "times": _value(ratio), "times_interval": None if ratio is None else ratio.interval,
        "verdict": None if cost is None else cost.verdict,
    }  # fmt: skip


def step_entry(step: TrainingStep) -> dict[str, Any]:
    """Seconds and bytes, null where there is none."""
    return {
        "case": msgspec.to_builtins(step.case), "messages": step.messages, "predicted": step.communication,
        "interval": step.interval, "why": step.why or step.lost or None, "error": step.error,
        "step_predicted": step.seconds, **_times_entry(step.times),
    }  # fmt: skip


def _times_entry(times: StepTimes | None) -> dict[str, Any]:
    if times is None:
        names = ("step", "compute", "not_hidden", "not_hidden_interval", "alone", "hidden")
        return dict.fromkeys(names)
    return {
        "step": times.step.value, "compute": times.compute.value, "not_hidden": times.exposed.value,
        "not_hidden_interval": times.exposed.interval, "alone": _value(times.alone), "hidden": times.hidden,
    }  # fmt: skip


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _trainings(steps: Sequence[TrainingStep]) -> list[list[TrainingStep]]:
    """Steps that differ in the place alone, in the order of places; trainings in the order of the run."""
    first: dict[Case, int] = {}
    for step in steps:
        first.setdefault(training_of(step.case), len(first))
    ordered = sorted(steps, key=lambda step: (first[training_of(step.case)], place_order(step.case)))
    return [list(group) for _, group in groupby(ordered, key=lambda step: first[training_of(step.case)])]


def _step_title(what: str, case: Case) -> str:
    return f"{what} of {operation(case)}, {ranks(case)}"


def _accuracy(group: Sequence[TrainingStep]) -> Table:
    times = [step.times for step in group if step.times is not None]
    shown = [one.value for own in times for one in (own.exposed, own.alone) if one is not None]
    scale = time_scale([*shown, *(step.communication for step in group if step.communication is not None)])
    columns = ("image", "place", scale.heading("predicted"), "predicted 95 %", scale.heading("alone"),
               scale.heading("not hidden"), "not hidden 95 %", "error (%)", "hidden (%)")  # fmt: skip
    rows = [
        (*_place(step.case), _text(scale, step.communication), _span(scale, step.interval),
         *_measured(scale, step.times), _percent(step.error), _percent(step.times.hidden if step.times else None))
        for step in group
    ]  # fmt: skip
    notes = [_messages(messages) for messages in dict.fromkeys(step.messages for step in group)]
    return _step_table(_step_title("communication", group[0].case), columns, rows, [*notes, _READING, *_remarks(group)])


def _measured(scale: Scale, times: StepTimes | None) -> tuple[str, str, str]:
    if times is None:
        return ("", "", "")
    return (_text(scale, _value(times.alone)), _text(scale, times.exposed.value), _span(scale, times.exposed.interval))


def _costs(group: Sequence[TrainingStep], costs: Mapping[Case, Comparison]) -> Table:
    measured = [None if step.times is None else step.times.step.value for step in group]
    predicted = [step.seconds for step in group]
    scale = time_scale(value for value in (*measured, *predicted) if value is not None)
    columns = ("image", "place", scale.heading("a step"), "times the fastest (95 %)", scale.heading("predicted"),
               "times the fastest, predicted")  # fmt: skip
    rows = [
        (*_place(step.case), _text(scale, taken), _cost(step, costs), _text(scale, told), _times(told, predicted))
        for step, taken, told in zip(group, measured, predicted, strict=True)
    ]
    return _step_table(_step_title("step", group[0].case), columns, rows, [_COSTS, _SIGNS, *_remarks(group)])


def _cost(step: TrainingStep, costs: Mapping[Case, Comparison]) -> str:
    """`1.07x (1.04 .. 1.13)`, with the sign of what is undecided or the same."""
    if step.times is None:
        return ""
    cost = costs.get(step.case)
    if cost is None:
        return "fastest"
    return "-" if cost.ratio is None else f"{times(cost.ratio)}{SIGNS.get(cost.verdict, '')}"


def _step_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], notes: Iterable[str]) -> Table:
    return without_empty(Table(title, columns, tuple(rows), tuple(dict.fromkeys(notes))))


def _place(case: Case) -> tuple[str, str]:
    return case.where.image or "", case.where.text


def _remarks(group: Sequence[TrainingStep]) -> list[str]:
    """Why there is no prediction, and what a reader of one must know, with the places."""
    places: dict[str, dict[str, None]] = {}
    for step in group:
        of_each = (f"{one.question}: {remark}" for one in step.predictions for remark in one.remarks)
        missing = [f"not predicted: {step.why}"] * bool(step.why) + [f"not compared: {step.lost}"] * bool(step.lost)
        for line in (*missing, *of_each):
            places.setdefault(line, {})[" ".join(filter(None, _place(step.case)))] = None
    return [f"{line} ({', '.join(names)})" for line, names in places.items()]


def _messages(messages: Sequence[int]) -> str:
    """`2 all-reduces a step, in their order: 1.20 MiB, 2.06 MiB; 3.26 MiB in all`."""
    if not messages:
        return "its all-reduces are not known"
    named = ", ".join(map(format_bytes, messages[:MOST_NAMED])) + ", ..." * (len(messages) > MOST_NAMED)
    return (
        f"{counted(len(messages), 'all-reduce')} a step, in their order: {named}; {format_bytes(sum(messages))} in all"
    )


def _text(scale: Scale, seconds: float | None) -> str:
    return "" if seconds is None else scale.text(seconds)


def _span(scale: Scale, ends: tuple[float, float] | None) -> str:
    return "" if ends is None else scale.span(ends)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:+.0f}"


def _times(seconds: float | None, every: Sequence[float | None]) -> str:
    known = [value for value in every if value is not None]
    return "" if seconds is None or min(known) <= 0 else f"{seconds / min(known):.2f}"


def document(modelled: Modelled) -> dict[str, Any]:
    """Everything of one run; seconds and bytes, null where there is none."""
    return {
        "run": modelled.name, "simulated": modelled.simulated,
        "models": [_model_entry(model) for model in modelled.models],
        "not_modelled": [{**_series_entry(unfit.series), "why": unfit.why} for unfit in modelled.unfit],
        "predictions": [_prediction_entry(prediction) for prediction in modelled.predictions],
        "refused": [
            {**_series_entry(refusal.series), **_point_entry(refusal.question), "why": refusal.why}
            for refusal in modelled.refusals
        ],
        "what_if": [_what_if_entry(what_if) for what_if in modelled.what_ifs],
        "steps": [step_entry(step) for step in modelled.steps],
    }  # fmt: skip


def _point_entry(question: PredictionQuestion) -> dict[str, Any]:
    return {"ranks": question.ranks, "bytes": question.size}


def _series_entry(series: Series) -> dict[str, Any]:
    return {"case": msgspec.to_builtins(series.case), "transport": series.transport or None}


def _model_entry(model: Model) -> dict[str, Any]:
    series = model.series
    return {
        **_series_entry(series), "launches": series.launches, "ranks": series.ranks, "sizes": series.sizes,
        "left_out": series.left_out,
        "pieces": [
            {"low": piece.low, "high": piece.high, **_fitted_entry(piece.fitted),
             "as_likely": [_fitted_entry(rival) for rival in piece.rivals]}
            for piece in model.fit.pieces
        ],
        "held_out": [_miss_entry(miss) for miss in model.sizes],
        "largest_ranks_held_out": [_miss_entry(miss) for miss in model.largest],
    }  # fmt: skip


def _miss_entry(miss: HeldOutError) -> dict[str, Any]:
    return {"ranks": miss.ranks, "size": miss.size, "predicted": miss.predicted, "measured": miss.measured}


def _fitted_entry(fitted: Fitted) -> dict[str, Any]:
    return {"algorithm": fitted.shape.name, "alpha": fitted.alpha, "beta": fitted.beta, "gamma": fitted.gamma,
            "beta_includes_reducing": fitted.merged}  # fmt: skip


def _prediction_entry(prediction: Prediction) -> dict[str, Any]:
    return {
        **_series_entry(prediction.series), **_point_entry(prediction.question), **_fitted_entry(prediction.fitted),
        "seconds": prediction.seconds, "interval": prediction.interval, "extrapolated": prediction.extrapolated,
        "remarks": prediction.remarks, "measured": prediction.measured,
    }  # fmt: skip


def _what_if_entry(what_if: WhatIf) -> dict[str, Any]:
    return {
        "collective": what_if.collective, **_point_entry(what_if.question),
        "latency": what_if.link.latency, "bandwidth": what_if.link.bandwidth, "gamma": what_if.gamma,
        "algorithms": [
            {"algorithm": row.fitted.shape.name, "seconds": row.seconds, "in_models": row.in_models or None}
            for row in what_if.rows
        ],
    }  # fmt: skip


MODELS = ("image", "place", "transport", "launches", "ranks", "sizes (B)", "algorithm", "alpha (us)", "1/beta (GB/s)",
          "1/gamma (GB/s)", "error at sizes held out (%)", "worst (%)", "error at most ranks held out (%)",
          "worst at most ranks (%)")  # fmt: skip
PREDICTIONS = ("image", "place", "transport", "ranks", "size (B)", "algorithm", "predicted (us)", "predicted 95 %",
               "measured (us)", "verdict")  # fmt: skip
WHAT_IFS = ("ranks", "size (B)", "algorithm", "time (us)", "algbw (GB/s)", "times the fastest", "in this run's models")


def tables(modelled: Modelled) -> list[Table]:
    """Models, a table for each collective, dtype and driver; then predictions likewise, what-ifs and training steps."""
    fits: list[Model | Unfit] = sorted([*modelled.models, *modelled.unfit], key=_order)
    refused = () if modelled.what_ifs else modelled.refusals  # a link answers what the run cannot
    answers: list[Prediction | Refusal] = sorted([*modelled.predictions, *refused], key=_order)
    everything = [
        *(_models(list(group)) for _, group in groupby(fits, key=_heading_key)),
        *(_answers(list(group)) for _, group in groupby(answers, key=_heading_key)),
        *(_what_ifs(list(group)) for _, group in groupby(modelled.what_ifs, key=lambda what_if: what_if.collective)),
        *accuracy_tables(modelled.steps),
    ]
    return [_simulated(table) for table in everything] if modelled.simulated else everything


def _simulated(table: Table) -> Table:
    return Table(table.title, table.columns, table.rows, (*table.notes, "simulated: these times were not measured"))


def _heading_key(result: Model | Unfit | Prediction | Refusal) -> tuple[object, ...]:
    return heading_key(result.series.case)


def _order(result: Model | Unfit | Prediction | Refusal) -> tuple[object, ...]:
    series = result.series
    return (heading_key(series.case), series.case.where.image or "", place_order(series.case), series.transport)


def _title(what: str, series: Series) -> str:
    return f"{what} {heading(series.case, with_ranks=False)}"


def _where(series: Series) -> tuple[str, str, str]:
    return series.case.where.image or "", series.case.where.text, series.transport


def _named(series: Series) -> str:
    return " ".join(word for word in _where(series) if word)


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], notes: Iterable[str]) -> Table:
    """Without empty columns, each note once."""
    return without_empty(Table(title, columns, tuple(rows), tuple(dict.fromkeys(notes))))


def _models(group: Sequence[Model | Unfit]) -> Table:
    models = [fitted for fitted in group if isinstance(fitted, Model)]
    rows = [_piece(model, piece) for model in models for piece in model.fit.pieces]
    notes = ["error: |predicted / measured - 1| at points held out of the fit"] if rows else []
    notes += _unfit([fitted for fitted in group if isinstance(fitted, Unfit)])
    notes += [line for fitted in group for line in _notes(fitted)]
    cells = [cell for fitted in group for cell in fitted.series.cells]
    return _table(_title("model of", group[0].series), MODELS, rows, [*notes, *cautions(cells)])


def _piece(model: Model, piece: Piece) -> tuple[str, ...]:
    series, fitted = model.series, piece.fitted
    near = [miss for miss in model.sizes if piece.low <= miss.size <= piece.high]
    far = [miss for miss in model.largest if piece.low <= miss.size <= piece.high]
    sizes = f"{format_size(piece.low)} .. {format_size(piece.high)}" if series.sized else ""
    return (
        *_where(series), str(series.launches), ", ".join(map(str, series.ranks)), sizes, fitted.shape.name,
        format_us(fitted.alpha), _rate(fitted.beta) if series.sized else "", _rate(fitted.gamma), *_errors(near),
        *_errors(far),
    )  # fmt: skip


def _rate(seconds: float | None) -> str:
    """GB/s of seconds a byte; `free` where bytes add nothing to the time."""
    if seconds is None:
        return ""
    return format_rate(1e-9 / seconds) if seconds > 0 else "free"


def _errors(misses: Iterable[HeldOutError]) -> tuple[str, str]:
    shares = errors(misses)
    return ("", "") if shares is None else (f"{shares[0] * 100:.1f}", f"{shares[1] * 100:.1f}")


def _unfit(group: Sequence[Unfit]) -> list[str]:
    """Each reason once, with the series that it applies to."""
    places: dict[str, list[str]] = {}
    for unfit in group:
        places.setdefault(unfit.why, []).append(_named(unfit.series))
    return [f"no model of {'; '.join(names)}: {why}" for why, names in places.items()]


def _notes(fitted: Model | Unfit) -> list[str]:
    """What the reader must know about a series."""
    series = fitted.series
    lines = [f"{line} ({_named(series)})" for line in (*series.left_out, *_measured_differently(series))]
    if isinstance(fitted, Unfit):
        return lines
    pieces = fitted.fit.pieces
    if any(piece.fitted.merged for piece in pieces):
        lines.append("1/beta includes the time for reducing: the ranks measured do not distinguish them")
    if len(series.ranks) == 1 and len(fitted.shapes) > 1:
        alone = f"{counted(series.ranks[0], 'rank')} alone: every algorithm fits equally well"
        lines.append(f"{alone}; alpha and beta are those of the one named")
    else:
        lines += [_rivals(series, piece) for piece in pieces if piece.rivals]
    if series.launches == 1:
        lines.append("one launch: intervals of predictions do not include differences between launches")
    return lines


def _rivals(series: Series, piece: Piece) -> str:
    sizes = f", {format_size(piece.low)} .. {format_size(piece.high)}" if series.sized else ""
    names = ", ".join(rival.shape.name for rival in piece.rivals)
    return f"as likely as {piece.fitted.shape.name}: {names} ({_named(series)}{sizes})"


def _measured_differently(series: Series) -> list[str]:
    """In what the cells of a series were measured differently; and bursts, in which operations overlap."""
    how = methods(series.cells)
    lines = [
        f"measured in several ways ({name}: {' and '.join(sorted(values))}): the model fits all of them together"
        for name, values in sorted(how.items())
        if len(values) > 1
    ]
    if "streaming" in how.get("cadence", ()):
        lines.append("cadence streaming: operations overlap, so alpha is what one more operation adds, not a latency")
    return lines


def _answers(group: Sequence[Prediction | Refusal]) -> Table:
    rows, notes = [], []
    for answer in group:
        question, series = answer.question, answer.series
        point = (*_where(series), str(question.ranks), format_size(question.size or 0) if series.sized else "")
        if isinstance(answer, Refusal):
            rows.append((*point, "", "", "", "", "refused"))
            notes.append(f"refused: {answer.why}")
            continue
        between = "" if answer.interval is None else " .. ".join(map(format_us, answer.interval))
        measured = "" if answer.measured is None else format_us(answer.measured)
        verdict = "extrapolated" if answer.extrapolated else "within reach"
        rows.append((*point, answer.fitted.shape.name, format_us(answer.seconds), between, measured, verdict))
        notes += [f"{question}: {remark}" for remark in answer.remarks]
    return _table(_title("prediction of", group[0].series), PREDICTIONS, rows, notes)


def _what_ifs(group: Sequence[WhatIf]) -> Table:
    link, gamma = group[0].link, group[0].gamma
    over = f"{format_duration(link.latency)} a message, {format_rate(link.bandwidth / 1e9)} GB/s"
    rows = [_what_if(what_if, row) for what_if in group for row in what_if.rows]
    notes = ["what if: computed for the link given, not measured"]
    if any(row.fitted.shape.reduced(2) > 0 for row in group[0].rows):
        notes.append("reducing is taken to be free: this run does not show what it costs" if gamma is None
                     else f"reducing at {_rate(gamma)} GB/s, as measured")  # fmt: skip
    return _table(f"what if: {group[0].collective} over {over}", WHAT_IFS, rows, notes)


def _what_if(what_if: WhatIf, row: Supposed) -> tuple[str, ...]:
    question, fastest = what_if.question, what_if.rows[0].seconds
    size = question.size if question.size and what_if.collective != "barrier" else None
    rate = format_rate(size / row.seconds / 1e9) if size and row.seconds > 0 else ""
    times = f"{row.seconds / fastest:.2f}" if fastest > 0 else ""
    return (str(question.ranks), "" if size is None else format_size(size), row.fitted.shape.name,
            format_us(row.seconds), rate, times, row.in_models)  # fmt: skip
