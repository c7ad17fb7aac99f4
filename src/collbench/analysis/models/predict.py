"""Predictions of a model at a number of ranks and a size, with an interval, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.models.fit import Fitted, Piece, evidence, solve
from collbench.analysis.models.series import NO_LINK, Point, Series
from collbench.analysis.models.validation import HeldOutError, Model, Unfit
from collbench.analysis.observations import Observed
from collbench.schema.case import Case
from collbench.schema.manifest import Host
from collbench.units import counted, format_bytes, format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Rank counts above this many times the largest measured are extrapolated. Such a prediction, or one as far beyond the
#: sizes measured, has no interval: the known errors are those within the measured range.
BEYOND = 2

#: How often launches are resampled, and how many errors are drawn for each resample.
DRAWS, ERRORS = 200, 50
SEED = 1994

#: A piece's own held-out errors make its intervals if they are of so many sizes, else those of all pieces do.
ENOUGH = 4


@dataclass(frozen=True)
class PredictionQuestion:
    """A point that is asked for. `size` is None where only collectives without sizes are meant."""

    ranks: int
    size: int | None

    def __str__(self) -> str:
        return f"{self.ranks} ranks" + ("" if self.size is None else f", {format_size(self.size)}")


@dataclass(frozen=True)
class Prediction:
    """Seconds at a point, with the interval in which 95 % of such runs' medians should lie.

    `extrapolated` beyond twice the ranks measured or beyond the sizes measured; beyond twice of either there is no
    interval. `remarks` say by how much, and what else the reader must know. `measured` is the median of launches where
    this very point was measured.
    """

    series: Series
    question: PredictionQuestion
    fitted: Fitted
    seconds: float
    interval: tuple[float, float] | None
    extrapolated: bool
    remarks: tuple[str, ...]
    measured: float | None


def predict(model: Model, question: PredictionQuestion) -> Prediction:
    """The prediction of a model at a point of its own transport (`applicability.py` says whether it is one).

    Raises:
        RequestError: SciPy is not installed.
    """
    size = (question.size or 0) if model.series.sized else 0
    pieces = model.fit.pieces_at(size)
    fitted = pieces[0].fitted
    inside = question.ranks in model.series.ranks
    far = question.ranks > BEYOND * model.series.ranks[-1] or times_beyond(model.series, size) > BEYOND
    interval = None if far else _interval(model, pieces, replace(question, size=size), inside)
    beyond, remarks = _beyond(model.series, question.ranks, size)
    if interval is None:
        remarks.append("no interval: errors are known only within the measured range")
    if interval is not None and len(pieces) > 1:
        low, high = min(piece.high for piece in pieces), max(piece.low for piece in pieces)
        between = f"between {format_size(low)} and {format_size(high)}"
        remarks.append(f"the model changes {between}: the interval covers both sides")
    if not inside and pieces[0].rivals:
        names = ", ".join(rival.shape.name for rival in pieces[0].rivals)
        covered = "" if interval is None else ": the interval covers them too"
        remarks.append(f"the ranks measured do not exclude {names}{covered}")
    measured = (p.seconds for p in model.series.points if (p.ranks, p.size) == (question.ranks, size))
    seconds = fitted.seconds(question.ranks, size)
    return Prediction(model.series, question, fitted, seconds, interval, beyond, tuple(remarks), next(measured, None))


def times_beyond(series: Series, size: int) -> float:
    """How many times a size is above the largest measured, or below the smallest; 1 in between."""
    if not series.sized:
        return 1.0
    return max(size / series.sizes[-1], series.sizes[0] / max(size, 1), 1.0)


def _interval(model: Model, pieces: Sequence[Piece], question: PredictionQuestion, inside: bool) -> tuple[float, float]:
    """From the lowest end to the highest, over the pieces at the size.

    Where the ranks asked for were not measured, shapes that are as likely predict different times, and all count.
    """
    draws = [
        _draws(model, piece, fitted, question)
        for piece in pieces
        for fitted in ((piece.fitted,) if inside else (piece.fitted, *piece.rivals))
    ]
    ends = [np.quantile(values, (0.025, 0.975)) for values in draws]
    return min(float(low) for low, _ in ends), max(float(high) for _, high in ends)


def _beyond(series: Series, ranks: int, size: int) -> tuple[bool, list[str]]:
    """Whether a point is far from what was measured, and how far."""
    remarks = []
    largest, low, high = series.ranks[-1], series.sizes[0], series.sizes[-1]
    if ranks > BEYOND * largest:
        remarks.append(f"extrapolated: {ranks} ranks are more than twice the {largest} measured")
    if not low <= size <= high:
        remarks.append(f"extrapolated: {format_size(size)} is beyond the sizes measured, {format_size(low)} to "
                       f"{format_size(high)}")  # fmt: skip
    extrapolated = bool(remarks)
    if largest < ranks <= BEYOND * largest or ranks < series.ranks[0]:
        remarks.append(f"{ranks} ranks are beyond those measured, {', '.join(map(str, series.ranks))}")
    return extrapolated, remarks


def _draws(model: Model, piece: Piece, fitted: Fitted, question: PredictionQuestion) -> NDArray[np.float64]:
    """Values of a prediction: the shape fitted to resampled launches, times an error like those of held-out points.

    Logarithms of held-out errors have mean 0 (a model is as often above as below) and their root mean square is known
    from few sizes, hence Student's t.
    """
    generator = np.random.default_rng(SEED)
    rows = evidence(model.series.points, model.shapes)
    inside = (rows.sizes >= piece.low) & (rows.sizes <= piece.high)
    assert question.size is not None
    resampled = (replace(rows, seconds=seconds).take(inside) for seconds in _resampled(model.series, generator))
    shapes = [solve(one, fitted.shape, fitted.columns)[0] for one in resampled] or [fitted]
    values = [shape.seconds(question.ranks, question.size) for shape in shapes]
    spread, freedom = error(model, piece, question.ranks)
    errors = spread * generator.standard_t(freedom, (len(values), ERRORS * DRAWS // len(values)))
    return np.asarray(np.array(values)[:, None] * np.exp(np.clip(errors, -50, 50)))


def error(model: Model, piece: Piece, ranks: int) -> tuple[float, int]:
    """Root mean square of the logarithms of held-out errors near a point, and the number of sizes (or rank counts).

    Errors of the piece if they are enough, else of all pieces. At rank counts that were not measured, not less than the
    error on the largest rank count held out.
    """
    settled = _settled(model)
    near: Sequence[HeldOutError] = [miss for miss in settled if piece.low <= miss.size <= piece.high]
    if len(_held(model, near)) < ENOUGH:
        near = settled
    spread = _spread(near)
    if ranks not in model.series.ranks:
        spread = max(spread, _spread(model.largest))
    return spread, max(len(_held(model, near)), 1)


def _settled(model: Model) -> Sequence[HeldOutError]:
    """Held-out errors without those beside a break; all, if that leaves none.

    A model without the sizes beside a break cannot locate it, and the model that predicts has them. Between these sizes
    its intervals cover both pieces anyway.
    """
    pieces = model.fit.pieces
    breaks = {size for before, after in pairwise(pieces) for size in (before.high, after.low)}
    return [miss for miss in model.sizes if miss.size not in breaks] or model.sizes


def _held(model: Model, misses: Iterable[HeldOutError]) -> set[int]:
    return {miss.size if model.series.sized else miss.ranks for miss in misses}


def _spread(misses: Iterable[HeldOutError]) -> float:
    logs = [math.log(miss.measured / miss.predicted) for miss in misses if miss.predicted > 0]
    return math.sqrt(sum(value * value for value in logs) / len(logs)) if logs else 0.0


def _resampled(series: Series, generator: np.random.Generator) -> Sequence[NDArray[np.float64]]:
    """Medians of all points, [points], of each resample of the launches with replacement; empty with one launch.

    Points with the same launches are resampled together: what a launch does to one size it does to others too.
    """
    points = series.points
    if max(len(point.launches) for point in points) < 2:
        return []
    medians = np.empty((DRAWS, len(points)))
    chosen: dict[tuple[int, ...], NDArray[np.int64]] = {}
    for column, point in enumerate(points):
        n = len(point.launches)
        if point.launches not in chosen:
            chosen[point.launches] = generator.integers(0, n, (DRAWS, n))
        medians[:, column] = np.median(np.array(point.medians)[chosen[point.launches]], axis=1)
    return list(medians)


#: Sizes are predicted up to this many times above the largest measured, or below the smallest.
REACH = 16

#: Collectives whose size is one buffer of the root, of which every other rank has a share.
SHARED_OUT = frozenset({"gather", "scatter"})

#: What to do where nothing measured reaches the point.
WHAT_IF = "name a link for a what-if: --link latency=2us,bandwidth=12.5GB/s"


def reaching_series(observed: Observed, kin: Sequence[Series], question: PredictionQuestion) -> Series | str:
    """Of the series of one case over several transports, the one that reaches a point; or why none does."""
    why = _places(observed, kin, question.ranks) or _memory(observed, kin[0], question)
    if why:
        return why
    corners = _corners([(point, series) for series in kin for point in series.points], question)
    names = list(dict.fromkeys(series.transport or "unknown" for _, series in corners))
    if len(names) > 1:
        measured = "; ".join(
            f"{series.transport or 'unknown'} at {point.ranks} ranks"
            + (f" and {format_size(point.size)}" if series.sized else "")
            for point, series in corners
        )
        return (
            f"{question} lies across a change of transport, measured: {measured}. "
            f"Ask for a point within one transport, or {WHAT_IF}"
        )
    if not corners:
        return NO_LINK
    series, size = corners[0][1], question.size or 0
    if times_beyond(series, size) <= REACH:
        return series
    measured = f"{format_size(series.sizes[0])} to {format_size(series.sizes[-1])}"
    return (
        f"{question} is more than {REACH} times beyond the sizes measured, {measured}, too far to predict. "
        f"Measure nearer sizes, or {WHAT_IF}"
    )


def _corners(grid: list[tuple[Point, Series]], question: PredictionQuestion) -> list[tuple[Point, Series]]:
    """The measured cells around a point: the nearest rank counts below and above, and of each the nearest sizes.

    Outside the grid the nearest edge.
    """
    corners = []
    for ranks in _around(sorted({point.ranks for point, _ in grid}), question.ranks):
        row = {point.size: (point, series) for point, series in grid if point.ranks == ranks}
        corners += [row[size] for size in _around(sorted(row), question.size or 0)]
    return corners


def _around(known: Sequence[int], value: int) -> set[int]:
    """The largest number that is at most the value, and the smallest that is at least the value."""
    below = [number for number in known if number <= value]
    above = [number for number in known if number >= value]
    return {*below[-1:], *above[:1]}


def _places(observed: Observed, kin: Sequence[Series], ranks: int) -> str:
    """Why so many ranks need a network that was not measured; empty where they do not."""
    most = max((series.ranks[-1] for series in kin if series.points), default=0)
    machines = [manifest.hosts for manifest in observed.manifests]
    cores = max((sum(host.cores for host in hosts) for hosts in machines), default=0)
    if ranks <= max(most, cores) or any(len(hosts) > 1 for hosts in machines):
        return ""
    names = ", ".join(sorted({host.name for hosts in machines for host in hosts}))
    return (
        f"{ranks} ranks do not fit on the one host measured ({names}, {counted(cores, 'core')}), and no network "
        f"between hosts was measured. Ask for at most {max(most, cores)} ranks, or {WHAT_IF}"
    )


def _memory(observed: Observed, series: Series, question: PredictionQuestion) -> str:
    """Why the buffers of these ranks fit into no machine that was measured; empty where they do, or it is unknown.

    Counts one buffer of each rank, the least that a collective has; where one buffer is shared out among the ranks,
    that one.
    """
    if not series.sized or question.size is None:
        return ""
    machines = [[_usable(host) for host in manifest.hosts] for manifest in observed.manifests]
    memory = max((sum(filter(None, hosts)) for hosts in machines if hosts and None not in hosts), default=None)
    needed = question.size * (1 if series.case.workload in SHARED_OUT else question.ranks)
    if memory is None or needed <= memory:
        return ""
    return (
        f"{question} need at least {format_bytes(needed)} of memory, and the machine measured has "
        f"{format_bytes(memory)}. Ask for less, or {WHAT_IF}"
    )


def _usable(host: Host) -> int | None:
    """Memory of the host and of the GPUs that ranks used on it (bytes); None where it is unknown."""
    known = [size for size in (host.memory, host.cgroup_memory) if size is not None]
    return min(known) + sum(gpu.memory for gpu in host.gpus) if known else None


@dataclass(frozen=True)
class Refusal:
    """A prediction that is refused, and why. `series` is one of those of the case."""

    series: Series
    question: PredictionQuestion
    why: str


def answers(
    observed: Observed, fits: Sequence[Model | Unfit], question: PredictionQuestion
) -> list[Prediction | Refusal]:
    """One for every case: by the model of the series that reaches the point, or why there is none.

    Raises:
        RequestError: SciPy is not installed.
    """
    by_case: dict[Case, list[Model | Unfit]] = {}
    for fitted in fits:
        if question.size is not None or not fitted.series.sized:
            by_case.setdefault(fitted.series.case, []).append(fitted)
    return [_answer(observed, same_case, question) for same_case in by_case.values()]


def _answer(observed: Observed, fits: Sequence[Model | Unfit], question: PredictionQuestion) -> Prediction | Refusal:
    reaching = reaching_series(observed, [fitted.series for fitted in fits], question)
    if isinstance(reaching, str):
        return Refusal(fits[0].series, question, reaching)
    chosen = next(fitted for fitted in fits if fitted.series is reaching)
    return Refusal(reaching, question, chosen.why) if isinstance(chosen, Unfit) else predict(chosen, question)
