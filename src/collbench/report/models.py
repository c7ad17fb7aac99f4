"""What `collbench model` prints: the answer and a grid, or every table; and the same as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from collbench.analysis.models.fit import Fitted
from collbench.analysis.models.model import FEWEST_RANKS, FEWEST_SIZES, HeldOutError, Model, Series, Unfit, errors
from collbench.analysis.models.predict import Prediction, Refusal, known_sizes, unknown_growth
from collbench.analysis.models.shapes import SHAPES
from collbench.analysis.results import methods
from collbench.report.caveats import cautions
from collbench.report.headings import heading, heading_key, operation, place_order
from collbench.report.numbers import format_rate, format_us
from collbench.report.tables import Table, terminal, without_empty
from collbench.units import counted, format_duration, format_size

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

_READING = "error: |predicted / measured - 1| at sizes held out; any: all algorithms fit; ?: others do too"


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
        return [one for one in self.fits if isinstance(one, Model)]


def sentence(found: Answers) -> str:
    """What the models say, and how well they fit."""
    known = [
        one for model in found.models for piece in model.fit.pieces
        if (one := errors(miss for miss in model.inner if piece.low <= miss.size <= piece.high))
    ]  # fmt: skip
    medians = sorted(median for median, _ in known)
    span = " to ".join(dict.fromkeys(f"{share * 100:.0f}" for share in (*medians[:1], *medians[-1:])))
    worst = f"worst {max(worst for _, worst in known) * 100:.0f} %" if known else "errors not known"
    typical = f"typical error of {counted(len(found.models), 'model')} {span} %, {worst}" if known else worst
    listed = list(dict.fromkeys(one.series.case.workload for one in found.fits))
    names = ", ".join(listed) if len(listed) <= MOST_NAMED else f"{len(listed)} collectives"
    standings = [*(one.standing for one in found.predictions), *("refused" for _ in found.refusals)]
    if len(standings) == 1:
        only = found.predictions[0]
        return f"{operation(only.series.case)}, {_point(only)}: {_value(only)}, {only.standing}; {typical}"
    if standings:
        counts = ", ".join(f"{standings.count(name)} {name}" for name in dict.fromkeys(standings))
        return f"{len(standings)} predictions of {names}: {counts}; {typical}"
    return f"{names}: {typical}, at sizes held out of the fit"


def _value(one: Prediction) -> str:
    """`266 us (259 to 273 us)`."""
    if one.interval is None:
        return f"{format_duration(one.seconds)}, no interval"
    low, high = map(format_duration, one.interval)
    return f"{format_duration(one.seconds)} ({low.removesuffix(high[high.index(' ') :])} to {high})"


def brief(found: Answers, further: Sequence[Table] = (), also: Iterable[str] = ()) -> list[Table]:
    """The answer with the grid of what was asked; `further` grids; what could mislead, with what is known `also`."""
    grid = _cut(_answers(found) if found.predictions else _models(found))
    shown = [replace(grid, title=sentence(found)), *further]
    lines = [*_warnings(found), *also]
    more = [f"{len(lines) - MOST_LINES} more, and every table: --all"] if len(lines) > MOST_LINES else []
    notes = (*shown[-1].notes, *map(_short, lines[:MOST_LINES]), *more, *_next(found))
    return [*shown[:-1], replace(shown[-1], notes=notes)]


def tables(found: Answers, narrow: bool = False) -> list[Table]:
    """Models and predictions, with every note; if `narrow`, what all rows have in common stands below."""
    models, answers = _models(found), _answers(found)
    shown = [replace(models, notes=(*models.notes, *_warnings(found))), *([answers] if answers.rows else [])]
    return [replace(_apart(table), title=table.title) for table in shown] if narrow else shown


def _cut(table: Table) -> Table:
    """The first rows, without detail."""
    grid = _apart(replace(table, rows=table.rows[:MOST_ROWS]))
    left = [f"{len(table.rows) - MOST_ROWS} more rows: --all"] if len(table.rows) > MOST_ROWS else []
    for name in _DETAIL:
        if name not in _IF_WIDE or max(map(len, terminal([replace(grid, notes=())]).splitlines())) > WIDTH:
            rows = tuple(tuple("" if column == name else cell for column, cell in zip(grid.columns, row, strict=True))
                         for row in grid.rows)  # fmt: skip
            grid = without_empty(replace(grid, rows=rows))
    return replace(grid, notes=(*grid.notes, *left))


def _apart(table: Table) -> Table:
    """What all rows have in common stands in a note, no longer in the rows."""
    rows = [list(row) for row in table.rows]
    common = []
    for index, name in enumerate(table.columns):
        parts = [row[index].split(", ") for row in rows]
        shared = [part for part in parts[0] if all(part in own for own in parts)] if name in _SAME else []
        for row, own in zip(rows, parts, strict=True):
            row[index] = ", ".join(part for part in own if part not in shared).replace(" .. ", " to ")
        common += [f"{', '.join(filter(None, shared))}{_SAME[name]}"] if any(shared) else []
    notes = (*filter(None, [", ".join(common)]), *table.notes)
    return without_empty(Table("", table.columns, tuple(map(tuple, rows)), notes))


def _short(line: str) -> str:
    """Without the names of what it is true of, where they take more than a line."""
    return line if len(line) <= WIDTH else re.sub(r" \([^()]*\)$", "", line)


def _models(found: Answers) -> Table:
    rows = []
    for model in sorted(found.models, key=_order):
        series, several = model.series, len(SHAPES[model.series.case.workload]) > 1
        for piece in model.fit.pieces:
            inside = [[miss for miss in misses if piece.low <= miss.size <= piece.high]
                      for misses in (model.inner, model.by_ranks)]  # fmt: skip
            name = "any" if len(series.ranks) == 1 and several else piece.fitted.shape.name + " ?" * bool(piece.rivals)
            rows.append((
                *_where(series), str(series.launches), ", ".join(map(str, series.ranks)),
                f"{format_size(piece.low)} .. {format_size(piece.high)}" if series.sized else "", name,
                format_us(piece.fitted.alpha), _rate(piece.fitted.beta) if series.sized else "",
                *_errors(inside[0]), *_errors(inside[1]),
            ))  # fmt: skip
    return without_empty(Table("models", MODELS, tuple(rows), (_READING,)))


def _rate(seconds: float) -> str:
    """GB/s of seconds a byte; `free` where bytes add nothing to the time."""
    return format_rate(1e-9 / seconds) if seconds > 0 else "free"


def _errors(misses: Iterable[HeldOutError]) -> tuple[str, str]:
    shares = errors(misses)
    return ("", "") if shares is None else (f"{shares[0] * 100:.1f}", f"{shares[1] * 100:.1f}")


def _answers(found: Answers) -> Table:
    rows = []
    every: list[Prediction | Refusal] = [*found.predictions, *found.refusals]
    for answer in sorted(every, key=_order):
        question, series = answer.question, answer.series
        point = (*_where(series), str(question.ranks), format_size(question.size or 0) if series.sized else "")
        if isinstance(answer, Refusal):
            rows.append((*point, "", "", "", "", "refused"))
            continue
        between = "" if answer.interval is None else " .. ".join(map(format_us, answer.interval))
        measured = "" if answer.measured is None else format_us(answer.measured)
        rows.append((*point, answer.fitted.shape.name, format_us(answer.seconds), between, measured, answer.standing))
    return without_empty(Table("predictions", PREDICTIONS, tuple(rows)))


def _order(result: Model | Unfit | Prediction | Refusal) -> tuple[object, ...]:
    series = result.series
    return (heading_key(series.case), series.case.where.image or "", place_order(series.case), series.transport)


def _where(series: Series) -> tuple[str, str, str]:
    case = series.case
    return heading(case, with_ranks=False), f"{case.where.image or ''} {case.where.text}".strip(), series.transport


def _point(one: Prediction | Refusal) -> str:
    return f"{one.question.ranks} ranks" + (f", {format_size(one.question.size or 0)}" if one.series.sized else "")


# What could mislead.


def _warnings(found: Answers) -> list[str]:
    """What could mislead, the gravest first, each line once with what it is true of."""
    places: dict[str, dict[str, None]] = {}
    for one in found.predictions:
        wrong = ["contradicted: the measured median is outside of the interval"] * (one.standing == "contradicted")
        for line in (*wrong, *remarks(one)):
            places.setdefault(line, {})[_point(one)] = None
    for refusal in found.refusals:
        places.setdefault(f"refused: {reason(refusal)}", {})[_point(refusal)] = None
    for fitted in found.fits:
        lines = [f"no model: {why_unfit(fitted)}"] if isinstance(fitted, Unfit) else _left_out(fitted.series)
        for line in lines:
            places.setdefault(line, {})[" ".join(_where(fitted.series)[1:]).strip()] = None
    listed = [f"{line} ({'; '.join(filter(None, names))})" for line, names in places.items()]
    cells = [cell for one in found.fits for cell in one.series.cells]
    lines = ["simulated: these times were not measured"] * found.simulated + listed
    if any(model.series.launches == 1 for model in found.models):
        lines.append("one launch: intervals do not include differences between launches")
    if "streaming" in methods(cells).get("cadence", ()):
        lines.append("cadence streaming: operations overlap, so a latency is what one more operation adds")
    return [*lines, *cautions(cells)]


def remarks(one: Prediction) -> list[str]:
    """What a reader of a prediction must know."""
    series, ranks, lines = one.series, one.question.ranks, []
    known = f"{', '.join(map(str, series.ranks))} ranks measured"
    growth = unknown_growth(series, ranks)
    if growth is not None:
        needs = f"other ranks need {FEWEST_RANKS} measured rank counts, and there are"
        why = {"far": "too far from the", "few": needs, "folded": "algorithms have other steps off powers of two;"}
        lines.append(f"no interval: {why[growth]} {known}")
    elif one.interval is not None and ranks not in series.ranks and one.pieces[0].rivals:
        names = ", ".join(rival.shape.name for rival in one.pieces[0].rivals)
        lines.append(f"the interval covers {names} too, as likely")
    smallest, largest = known_sizes(series, ranks)
    if series.sized and not smallest <= (one.question.size or 0) <= largest:
        lines.append(f"no interval: beyond the sizes measured, {format_size(smallest)} to {format_size(largest)}")
    elif one.interval is not None and len(one.pieces) > 1:
        low, high = min(piece.high for piece in one.pieces), max(piece.low for piece in one.pieces)
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
    """Why a prediction is refused."""
    if refusal.most is not None:
        return f"the one host measured has cores for {refusal.most} ranks, and no network was measured"
    return why_unfit(refusal.unfit) if isinstance(refusal.unfit, Unfit) else ""


def _left_out(series: Series) -> list[str]:
    """How many cells are not used, for each reason."""
    every = counted(len(series.left_out) + len(series.cells), "cell")
    return [f"left out: {series.left_out.count(why)} of {every}: {why}" for why in dict.fromkeys(series.left_out)]


def _next(found: Answers) -> list[str]:
    """The command that tells most: to measure what has no interval, or to predict."""
    for one in found.predictions:
        if one.interval is None and one.series.case.where.on_host:
            size = f" -b {format_size(one.question.size or 0)} -e {format_size(one.question.size or 0)}"
            command = f"mpirun -n {one.question.ranks} collbench {one.series.case.workload}"
            return [f"next: measure it: {command}{size if one.series.sized else ''}"]
    if found.predictions or not found.models:
        return []
    series = found.models[0].series
    size = f",bytes={format_size(series.sizes[-1] * 3 // 4)}" if series.sized else ""
    return [f"next: collbench model {found.name} --predict ranks={series.ranks[-1]}{size}"]


def document(found: Answers, steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything of one run; seconds and bytes, null where there is none."""
    return {
        "run": found.name, "simulated": found.simulated, "answer": sentence(found),
        "models": [_model_entry(model) for model in found.models],
        "not_modelled": [{**_series_entry(one.series), "why": why_unfit(one)} for one in found.fits
                         if isinstance(one, Unfit)],
        "predictions": [_prediction_entry(prediction) for prediction in found.predictions],
        "refused": [{**_point_entry(one), "why": reason(one)} for one in found.refusals],
        "steps": steps,
    }  # fmt: skip


def _series_entry(series: Series) -> dict[str, Any]:
    return {"case": msgspec.to_builtins(series.case), "transport": series.transport or None}


def _point_entry(one: Prediction | Refusal) -> dict[str, Any]:
    return {**_series_entry(one.series), "ranks": one.question.ranks, "bytes": one.question.size}


def _model_entry(model: Model) -> dict[str, Any]:
    series = model.series
    return {
        **_series_entry(series), "launches": series.launches, "ranks": series.ranks, "sizes": series.sizes,
        "left_out": _left_out(series),
        "pieces": [
            {"low": piece.low, "high": piece.high, **_fitted_entry(piece.fitted),
             "as_likely": [_fitted_entry(rival) for rival in piece.rivals]}
            for piece in model.fit.pieces
        ],
        "held_out": msgspec.to_builtins(model.sizes), "ranks_held_out": msgspec.to_builtins(model.by_ranks),
    }  # fmt: skip


def _fitted_entry(fitted: Fitted) -> dict[str, Any]:
    return {"algorithm": fitted.shape.name, "alpha": fitted.alpha, "beta": fitted.beta}


def _prediction_entry(one: Prediction) -> dict[str, Any]:
    return {**_point_entry(one), **_fitted_entry(one.fitted), "seconds": one.seconds, "interval": one.interval,
            "standing": one.standing, "remarks": remarks(one), "measured": one.measured}  # fmt: skip
