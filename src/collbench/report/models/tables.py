"""Models, their predictions and what-ifs as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from collbench.analysis.models.fit import Piece
from collbench.analysis.models.predict import Prediction
from collbench.analysis.models.run_models import Modelled, Refusal
from collbench.analysis.models.series import Series, ways
from collbench.analysis.models.validation import HeldOutError, Model, Unfit, errors
from collbench.analysis.models.what_if import WhatIf
from collbench.analysis.ordering import place, place_order
from collbench.report.cells import cautions
from collbench.report.headings import heading, heading_key
from collbench.report.style import format_rate, format_us
from collbench.report.tables import Table
from collbench.units import format_duration, format_size

MODELS = ("image", "place", "transport", "launches", "ranks", "sizes (B)", "algorithm", "alpha (us)", "1/beta (GB/s)",
          "1/gamma (GB/s)", "error at sizes held out (%)", "worst (%)", "error at most ranks held out (%)",
          "worst at most ranks (%)")  # fmt: skip
PREDICTIONS = ("image", "place", "transport", "ranks", "size (B)", "algorithm", "predicted (us)", "predicted 95 %",
               "measured (us)", "verdict")  # fmt: skip
WHAT_IFS = ("ranks", "size (B)", "algorithm", "time (us)", "algbw (GB/s)", "times the quickest", "in this run's models")


def tables(found: Modelled) -> list[Table]:
    """Models, a table for each collective, dtype and driver; then predictions likewise; then what-ifs."""
    fitted: list[Model | Unfit] = sorted([*found.models, *found.unfit], key=lambda one: _order(one.series))
    models = [_models(list(group)) for _, group in groupby(fitted, key=lambda one: heading_key(one.series.case))]
    refused = () if found.what_ifs else found.refusals  # a link answers what the run cannot
    answers: list[Prediction | Refusal] = sorted([*found.predictions, *refused], key=lambda one: _order(one.series))
    said = [_answers(list(group)) for _, group in groupby(answers, key=lambda one: heading_key(one.series.case))]
    supposed = [_supposed(list(group)) for _, group in groupby(found.what_ifs, key=lambda one: one.collective)]
    everything = [*models, *said, *supposed]
    return [_simulated(table) for table in everything] if found.simulated else everything


def _simulated(table: Table) -> Table:
    return Table(table.title, table.columns, table.rows, (*table.notes, "simulated: these times were not measured"))


def _order(series: Series) -> tuple[object, ...]:
    return (heading_key(series.case), series.case.where.image or "", place_order(series.case), series.transport)


def _title(what: str, series: Series) -> str:
    return f"{what} {heading(series.case, with_ranks=False)}"


def _where(series: Series) -> tuple[str, str, str]:
    return series.case.where.image or "", place(series.case), series.transport


def _named(series: Series) -> str:
    return " ".join(word for word in _where(series) if word)


def _cut(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], notes: Iterable[str]) -> Table:
    """A table without the columns in which no row says anything; each note once."""
    kept = [index for index, _ in enumerate(columns) if any(row[index] for row in rows)]
    body = tuple(tuple(row[index] for index in kept) for row in rows)
    return Table(title, tuple(columns[index] for index in kept), body, tuple(dict.fromkeys(notes)))


def _models(group: Sequence[Model | Unfit]) -> Table:
    rows = [_piece(one, piece) for one in group if isinstance(one, Model) for piece in one.fit.pieces]
    notes = _unfit([one for one in group if isinstance(one, Unfit)]) + [line for one in group for line in _notes(one)]
    if rows:
        notes.insert(0, "error: |predicted / measured - 1| where the model had not seen what it predicts")
    cells = [cell for one in group for cell in one.series.cells]
    return _cut(_title("model of", group[0].series), MODELS, rows, [*notes, *cautions(cells)])


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
    """GB/s of seconds a byte; `free` where a byte takes no time that shows."""
    if seconds is None:
        return ""
    return format_rate(1e-9 / seconds) if seconds > 0 else "free"


def _errors(misses: Iterable[HeldOutError]) -> tuple[str, str]:
    found = errors(misses)
    return ("", "") if found is None else (f"{found[0] * 100:.1f}", f"{found[1] * 100:.1f}")


def _unfit(group: Sequence[Unfit]) -> list[str]:
    """Each reason once, with the series that it holds for."""
    places: dict[str, list[str]] = {}
    for one in group:
        places.setdefault(one.why, []).append(_named(one.series))
    return [f"no model of {'; '.join(names)}: {why}" for why, names in places.items()]


def _notes(one: Model | Unfit) -> list[str]:
    """What the reader must know of a series."""
    series = one.series
    lines = [f"{line} ({_named(series)})" for line in (*series.left_out, *_measured_alike(series))]
    if isinstance(one, Unfit):
        return lines
    fitted = [piece.fitted for piece in one.fit.pieces]
    if any(each.merged for each in fitted):
        lines.append("1/beta includes the time for reducing: these ranks do not tell them apart")
    if len(series.ranks) == 1 and len(one.shapes) > 1:
        alone = f"{series.ranks[0]} ranks alone fit every algorithm alike"
        lines.append(f"{alone}: alpha and beta are those of the one named")
    elif any(piece.rivals for piece in one.fit.pieces):
        lines += [_rivals(series, piece) for piece in one.fit.pieces if piece.rivals]
    if series.launches == 1:
        lines.append("one launch: intervals of predictions know nothing of how launches differ")
    return lines


def _rivals(series: Series, piece: Piece) -> str:
    sizes = f", {format_size(piece.low)} .. {format_size(piece.high)}" if series.sized else ""
    names = ", ".join(rival.shape.name for rival in piece.rivals)
    return f"as likely as {piece.fitted.shape.name}: {names} ({_named(series)}{sizes})"


def _measured_alike(series: Series) -> list[str]:
    """Where the cells of a series were not measured in one way; and bursts, which overlap."""
    lines = [f"measured in several ways, {way}: the model is of all together" for way in ways(series.cells)]
    if any(dict(how).get("cadence") == "streaming" for cell in series.cells for how in cell.how):
        lines.append("cadence streaming: operations overlap, so alpha is what one more adds, and no latency")
    return lines


def _answers(group: Sequence[Prediction | Refusal]) -> Table:
    rows, notes = [], []
    for one in group:
        question = one.question
        point = (str(question.ranks), format_size(question.size or 0) if one.series.sized else "")
        if isinstance(one, Refusal):
            rows.append((*_where(one.series), *point, "", "", "", "", "refused"))
            notes.append(f"refused: {one.why}")
            continue
        between = "" if one.interval is None else " .. ".join(map(format_us, one.interval))
        measured = "" if one.measured is None else format_us(one.measured)
        verdict = "extrapolated" if one.extrapolated else "within reach"
        rows.append((*_where(one.series), *point, one.fitted.shape.name, format_us(one.seconds), between, measured,
                     verdict))  # fmt: skip
        notes += [f"{question}: {remark}" for remark in one.remarks]
    return _cut(_title("prediction of", group[0].series), PREDICTIONS, rows, notes)


def _supposed(group: Sequence[WhatIf]) -> Table:
    link, gamma = group[0].link, group[0].gamma
    over = f"{format_duration(link.latency)} a message, {format_rate(link.bandwidth / 1e9)} GB/s"
    rows = []
    for one in group:
        size = one.question.size if one.question.size and group[0].collective != "barrier" else None
        for row in one.rows:
            rate = format_rate(size / row.seconds / 1e9) if size and row.seconds > 0 else ""
            times = f"{row.seconds / one.rows[0].seconds:.2f}" if one.rows[0].seconds > 0 else ""
            rows.append((str(one.question.ranks), "" if size is None else format_size(size), row.fitted.shape.name,
                         format_us(row.seconds), rate, times, row.found))  # fmt: skip
    notes = ["what if: arithmetic with the link given, and no measurement"]
    if any(row.fitted.shape.reduced(2) > 0 for row in group[0].rows):
        notes.append("reducing takes no time here: this run does not tell it apart" if gamma is None
                     else f"reducing at {_rate(gamma)} GB/s, as measured")  # fmt: skip
    return _cut(f"what if: {group[0].collective} over {over}", WHAT_IFS, rows, notes)
