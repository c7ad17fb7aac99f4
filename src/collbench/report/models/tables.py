"""Models, their predictions and what-ifs as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from collbench.analysis.models.answers import Refusal
from collbench.analysis.models.fit import Piece
from collbench.analysis.models.predict import Prediction
from collbench.analysis.models.run_models import Modelled
from collbench.analysis.models.series import Series
from collbench.analysis.models.validation import HeldOutError, Model, Unfit, errors
from collbench.analysis.models.what_if import Supposed, WhatIf
from collbench.analysis.observations import methods
from collbench.report.cells import cautions
from collbench.report.headings import heading, heading_key, place_order
from collbench.report.models.steps import accuracy_tables
from collbench.report.style import format_rate, format_us
from collbench.report.tables import Table, without_empty
from collbench.units import counted, format_duration, format_size

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
