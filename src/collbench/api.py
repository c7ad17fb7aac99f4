"""The interface for programs and notebooks: `collbench.load`, `collbench.compare` and `collbench.advise`.

Each returns columns of equal length, NumPy arrays by name, which show themselves as tables. What is promised of them is
in docs/python.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collbench.analysis.compare import MARGIN, Comparison
from collbench.analysis.options import fixed_cells, parse_fixed
from collbench.analysis.runs import Flaw, refuse_same, run_folders, sources
from collbench.analysis.sides import in_one_run, in_two_runs, read_run
from collbench.errors import RequestError, RunReadError
from collbench.report.caveats import flaw_text, shortage_text
from collbench.report.tables import Table, joined, terminal
from collbench.schema.axes import AXES
from collbench.schema.case import Case
from collbench.schema.manifest import read_manifest
from collbench.schema.record import Record
from collbench.schema.samples import SampleFiles
from collbench.schema.store import RecordStream
from collbench.units import counted

if TYPE_CHECKING:
    from collbench.analysis.runs import Observed

#: A run, a folder of runs, or several of them.
Paths = str | os.PathLike[str]

#: Rows of columns that are printed.
MOST_ROWS = 20

#: A number that a row does not have.
NAN = float("nan")


@dataclass(frozen=True, repr=False)
class Columns:
    """Columns of equal length: `result["median"]` is an array. `tables` are what is printed, if more than the columns.

    Numbers are int64, or float64 with NaN where a row has none; words are objects, with None where a row has none.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    tables: tuple[Table, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the columns."""
        return iter(self.columns)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame. ImportError: pandas is not installed."""
        return import_module("pandas").DataFrame(dict(self.columns))

    def to_polars(self) -> Any:
        """A polars.DataFrame. ImportError: polars is not installed."""
        columns = {name: values.tolist() for name, values in self.columns.items()}
        return import_module("polars").DataFrame(columns, strict=False)

    def __repr__(self) -> str:
        return f"<{len(self)} rows: {', '.join(self)}>"

    def __str__(self) -> str:
        return terminal(self._shown())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from tabulate import tabulate

        parts = []
        for table in map(joined, self._shown()):
            notes = "".join(tabulate([[note]], tablefmt="html") for note in table.notes)
            title = tabulate([[table.title]], tablefmt="html")
            parts.append(title + tabulate(table.rows, table.columns, "html", disable_numparse=True) + notes)
        return "".join(parts)

    def _shown(self) -> Sequence[Table]:
        """The tables, or else the first rows of the columns that are not the same in all."""
        if self.tables:
            return self.tables
        columns = {name: [_text(value) for value in values] for name, values in self.columns.items()}
        same = {name: texts[0] for name, texts in columns.items() if len(texts) > 1 and len(set(texts)) == 1}
        rows = {name: texts[:MOST_ROWS] for name, texts in columns.items() if name not in same}
        notes = [f"the first {MOST_ROWS}"] * (len(self) > MOST_ROWS)
        notes += [f"in all rows: {', '.join(f'{name} {text}' for name, text in same.items() if text)}"] * bool(same)
        return (Table.of(f"{len(self)} rows", rows, notes),)


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """A column of values, of which None are missing."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds and kinds <= {int, float}:
        whole = kinds == {int} and None not in values
        return np.array([np.nan if value is None else value for value in values], np.int64 if whole else np.float64)
    if kinds == {bool} and None not in values:
        return np.array(values, bool)
    column = np.empty(len(values), object)
    column[:] = [value if value is None or isinstance(value, bool) else str(value) for value in values]
    return column


def _refuse_margin(margin: float) -> None:
    if not isinstance(margin, (int, float)) or not 0 <= margin < 1:
        raise RequestError(f"margin {margin!r}: a share from 0 to below 1, such as 0.05.")


def _columns(rows: Sequence[Mapping[str, Any]], always: Sequence[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Those of every result, then in the order of the first row that has them."""
    names = dict.fromkeys((*always, *(name for row in rows for name in row)))
    return {name: array([row.get(name) for row in rows]) for name in names}


# load ----------------------------------------------------------------------------------------------------------------

#: Axes that every run has a column of.
USUAL_AXES = ("size", "image", "policy", "isolation", "ranks")

#: Times of a record by the name of their column.
TIMES = {"median": "p50", "min": "min", "p95": "p95", "p99": "p99", "max": "max", "mean": "mean"}


@dataclass(frozen=True, repr=False)
class RunTable(Columns):
    """The records of a run, a row for each case and launch."""

    files: tuple[tuple[Path, Record], ...] = ()

    def samples(self, row: int, by_rank: bool = False) -> npt.NDArray[np.float64]:
        """Seconds of each sample of a row, [n]: the longest of all ranks, without late samples.

        `by_rank`: [ranks, n], with NaN for late samples; above 64 ranks [1, n]. IndexError, RunReadError.
        """
        folder, record = self.files[row]
        with SampleFiles(folder) as files:
            ns = files.read(record)
        if ns is None:
            return np.empty((0, 0) if by_rank else 0)
        if by_rank:
            return np.where(ns < 0, np.nan, ns * 1e-9)
        longest = ns.max(axis=0)
        seconds: npt.NDArray[np.float64] = longest[longest > 0] * 1e-9
        return seconds


def load(run: Paths) -> RunTable:
    """The records of a run, or of each run in a folder: axes of the case, times in seconds, and what was checked.

    Raises RunReadError: it is no run, or has no records.
    """
    folders = run_folders(Path(run))[0] or [Path(run)]
    files, rows = list[tuple[Path, Record]](), list[dict[str, Any]]()
    for folder in folders:
        read_manifest(folder)
        stream = RecordStream(folder)
        files += [(folder, record) for record in stream]
        if stream.truncated:
            warnings.warn(flaw_text(Flaw("cut off", folder)), stacklevel=2)
    if not files:
        raise RunReadError(f"{run}: no records in it.")
    axes = _axes_of([record.case for _, record in files])
    for folder, record in files:
        rows.append(({"run": folder.name} if len(folders) > 1 else {}) | _row(record, axes))
    return RunTable(_columns(rows), files=tuple(files))


def _axes_of(cases: Collection[Case]) -> list[str]:
    """Those of the workloads, then the usual ones and those that are not neutral everywhere."""
    used = {axis for case in cases for axis in chain(case.what, case.how)}
    of_table = [name for name, axis in AXES.items()
                if name in used or name in USUAL_AXES or any(case[name] != axis.neutral for case in cases)]  # fmt: skip
    return [*sorted(used - set(AXES)), *of_table]


def _row(record: Record, axes: Sequence[str]) -> dict[str, Any]:
    work, samples = record.work, record.samples
    return {
        "launch": record.launch, "status": record.status, "reason": record.reason, "workload": record.case.workload,
        **{axis: record.case[axis] for axis in axes},
        "amount": work.amount if work else NAN, "unit": work.unit if work else None,
        **{name: getattr(record.seconds, statistic, NAN) for name, statistic in TIMES.items()},
        "samples": samples.n if samples else 0, "late": samples.invalid if samples else 0,
        "wrong": _number(record.check.wrong if record.check else None),
        "algbw": _number(record.algbw), "busbw": _number(record.busbw),
        "contended": record.contended, "oversubscribed": record.oversubscribed, "transport": record.transport,
        "driver": record.driver,
    }  # fmt: skip


def _number(value: float | None) -> float:
    return NAN if value is None else value


# compare and advise --------------------------------------------------------------------------------------------------


def _read(runs: Sequence[Paths], given: Mapping[str, Any]) -> list[Observed]:
    """The runs with the cells that have these values; a warning for each flaw of theirs, and for what is missing.

    RequestError: none is named, two hold the same launches, or nothing is left of one.
    """
    if not runs:
        raise RequestError("name a run: the folder that --out or launch wrote.")
    observed = [read_run(Path(run)) for run in runs]
    refuse_same(sources(*observed))
    for run in observed:
        for line in (*map(shortage_text, run.shortages), *map(flaw_text, run.flaws)):
            warnings.warn(line, stacklevel=3)
    return [fixed_cells(run, _fixed(given, run)) for run in observed] if given else observed


def _fixed(given: Mapping[str, Any], run: Observed) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise RequestError(f'given={given!r}: a dict of values by axis, such as {{"image": "openmpi"}}.')
    return parse_fixed([f"{name}={value}" for name, value in given.items()], run.cells)


def compare(
    *runs: Paths, by: str | None = None, given: Mapping[str, Any] | None = None, ignore: Collection[str] = (),
    margin: float = MARGIN,
) -> Columns:  # fmt: skip
    """Two sides of a run, which differ in `by`, or two runs; as `collbench compare`.

    A row for each cell: names and cases of `base` and `other`, their medians (s), the `ratio` of the time of `other`
    over that of `base` with the ends of its interval (`low`, `high`), the `verdict` and its reason. `given` are values
    on axes.

    Raises RequestError: there are not two sides, or they differ in more than that.
    """
    from collbench.analysis import compare as comparing
    from collbench.report.verdict import tables

    _refuse_margin(margin)
    if not isinstance(by, str | None):
        raise RequestError(f'by={by!r}: the name of one factor, such as "policy".')
    sides, ignore = _read(runs, given or {}), [ignore] if isinstance(ignore, str) else ignore
    if len(sides) == 1 and by is not None:
        matched = in_one_run(sides[0], by, ignore)
    elif len(sides) == 2:
        base, other = sides
        matched = in_two_runs(base, other, by, ignore)
    else:
        raise RequestError(
            f'compare: {counted(len(sides), "run")}. Name two, or one with what its sides differ in: by="policy".'
        )
    comparisons = comparing.compare(matched.pairs, margin, matched.in_blocks)
    return Columns(_columns(list(map(_compared, comparisons))), tuple(tables(comparisons, margin)))


#: Axes of the place that no name of a place has.
PLACE_AXES = ("affinity", "gpus", "cores", "storage", "seccomp", "hosts")

#: Columns of advice, whether or not there is any.
ADVICE = ("operation", "workload", "ranks", "from", "to", "take", "at_most", "may_be_best_too")


def _compared(comparison: Comparison) -> dict[str, Any]:
    from collbench.report.verdict import whole_reason

    pair, ratio = comparison.pair, comparison.ratio
    case = pair.base.case
    low, high = (ratio and ratio.interval) or (NAN, NAN)
    return {
        "workload": case.workload, **{axis.name: case[axis.name] for axis in case.axes if axis.kind != "where"},
        **{name: case[name] for name in PLACE_AXES if case[name] == pair.other.case[name] != AXES[name].neutral},
        "ranks": case.where.ranks, "base": pair.base_name, "other": pair.other_name,
        "base_place": case.where.text, "other_place": pair.other.case.where.text, "image": case.where.image,
        "base_median": comparison.base.value if comparison.base else NAN,
        "other_median": comparison.other.value if comparison.other else NAN,
        "ratio": ratio.value if ratio else NAN, "low": low, "high": high, "verdict": comparison.verdict,
        "reason": whole_reason(comparison) or None, "launches": min(comparison.launches),
        "launches_more": _number(comparison.launches_more),
    }  # fmt: skip


def advise(*runs: Paths, given: Mapping[str, Any] | None = None, margin: float = MARGIN) -> Columns:
    """What to take for each operation, number of ranks and range of sizes, and what it may lose; as `collbench advise`.

    `at_most` is the time of `take` over that of the best option, at most, with 95 % confidence.

    Raises RequestError: no run is named, or runs cannot be taken together.
    """
    from collbench.analysis import advise as advising
    from collbench.analysis.compare import compare, planned
    from collbench.analysis.options import differing, merged, questions
    from collbench.report.advice import brief, cautions, chosen, complete, document, rivals

    _refuse_margin(margin)
    each = _read(runs, {})
    observed = merged(each)
    fixed = _fixed(given or {}, observed)
    remaining = fixed_cells(observed, fixed)
    found = advising.advise(questions(observed, fixed), observed.interleaved, margin)
    advices = complete(found, observed.interleaved)
    misleading = cautions(advices, observed, planned(remaining, margin), differing(each))
    against = compare(rivals(advices), margin, observed.interleaved)
    rows = [{**{name: answer[name] for name in ("operation", "workload", "ranks")},
             **{name: one[name] for name in ("from", "to", "take")},
             "at_most": _number(one["at_most"]), "may_be_best_too": "; ".join(one["may_be_best_too"]) or None}
            for answer in document(advices, ())["advice"] for one in answer["ranges"]]  # fmt: skip
    tables = brief(advices, misleading, against, choices=chosen(each, remaining.cells.values()))
    return Columns(_columns(rows, ADVICE), tuple(tables))
