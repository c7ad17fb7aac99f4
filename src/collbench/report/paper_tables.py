"""What a paper lists beside its conclusions, from runs: ratios, best and worst, spread over repetitions, curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median, stdev

from collbench.analysis.compare import compare
from collbench.analysis.estimate import Estimate
from collbench.analysis.pairs import Pair
from collbench.analysis.papers import ContainerKind, Item, Paper, Ratio
from collbench.analysis.results import Cell, grouped
from collbench.report.headings import case_words
from collbench.report.numbers import digits, four_digits
from collbench.report.tables import Table, without_empty

#: A figure of a check after a number of steps, as the workload names it.
_ACCURACY, _SECONDS = "accuracy at step ", "seconds at step "

_OTHER_MACHINES = "times of different machines are not comparable, so all are ratios"


def tables_beside(published: Paper, kinds: Sequence[ContainerKind]) -> Iterator[Table]:
    """Those that have something of these runs."""
    items = [item for kind in kinds for item in kind.items]
    yield _ratios(published, items)
    yield from (table for kind in kinds[:1] for table in (_best_and_worst(published, kind), _spread(published, kind)))
    yield _curves(published, items)


def _ratios(published: Paper, items: Sequence[Item]) -> Table:
    """Published ratios of times, those first that runs have too."""
    measured = [(ratio, _measured(ratio, items)) for ratio in published.ratios if items]
    rows = tuple((ratio.text, f"{ratio.ratio:.2f}x", f"{digits(here.value)}x" if here else "not measured")
                 for ratio, here in sorted(measured, key=lambda row: row[1] is None))  # fmt: skip
    return Table(f"ratios of {published.reference}", ("ratio", "in the paper", "here"), rows,
                 (_OTHER_MACHINES,) * bool(rows))  # fmt: skip


def _measured(ratio: Ratio, items: Sequence[Item]) -> Estimate | None:
    """In the first run and kind of container that has both sides."""
    for of in filter(ratio.of.takes, items):
        for over in filter(ratio.over.takes, items):
            alike = (of.run, of["isolation"]) == (over.run, over["isolation"])
            if alike and of.cell is not None and over.cell is not None:
                return compare([Pair(over.cell, of.cell, over.name, of.name)], in_blocks=of.in_blocks)[0].ratio
    return None


def _best_and_worst(published: Paper, kind: ContainerKind) -> Table:
    """The fastest and the slowest library and placement of each collective, by the number of workers."""
    measured = [(item, median(item.cell.medians)) for item in kind.items if item.cell and item.case["backend"]]
    rows = []
    for (workload, workers), members in grouped(((item.case.workload, item["workers"]), (item.name, seconds))
                                                for item, seconds in measured).items():  # fmt: skip
        (best, least), (worst, most) = min(members, key=lambda one: one[1]), max(members, key=lambda one: one[1])
        there = sorted((figure.seconds, f"{figure.cell.values['policy']} {figure.cell.values['library']}")
                       for figure in published.figures if figure.cell.workload == workload
                       and figure.cell.values["workers"] == workers)  # fmt: skip
        paper = (there[0][1], there[-1][1], f"{there[-1][0] / there[0][0]:.2f}x") if there else ("", "", "")
        rows.append((workload, str(workers), best, worst, f"{most / least:.2f}x", *paper))
    columns = ("operation", "workers", "best", "worst", "worst over best", "best in the paper", "worst in the paper",
               "worst over best in the paper")  # fmt: skip
    title = f"best and worst of {published.reference}" + (f": step {kind.step}" if kind.step else "")
    return without_empty(Table(title, columns, tuple(rows), (_OTHER_MACHINES,) * bool(rows)))


def _spread(published: Paper, kind: ContainerKind) -> Table:
    """Best, mean and standard deviation over repetitions, of the programs of which the paper gives them."""
    figures = [figure for figure in published.experiments if figure.deviation is not None]
    wanted = [figure.cell for figure in figures if figure.cell is not None]
    opposed = [pair for pair in kind.beside_host if any(selector.takes(pair.base) for selector in wanted)]
    cases, rows = [pair.base.case for pair in opposed], list[tuple[str, ...]]()
    for item in (item for pair in opposed for item in (pair.base, pair.other)):
        rates = [item.cell.work.amount / seconds * 1e-6 for seconds in item.cell.medians] if item.cell else []
        if len(rates) > 1:
            numbers = map(four_digits, (max(rates), fmean(rates), stdev(rates)))
            rows.append((case_words(item.case, cases), item.case.where.text, *numbers))
    for figure in figures if rows else ():
        numbers = map(four_digits, (figure.best or 0.0, figure.docker or figure.host or 0.0, figure.deviation or 0.0))
        rows.append((figure.quantity, f"{figure.machine}, in the paper", *numbers))
    columns = ("program", "where", "best (MB/s)", "mean (MB/s)", "deviation (MB/s)")
    return Table(f"spread over repetitions, as in {published.reference}", columns, tuple(rows))


def _curves(published: Paper, items: Sequence[Item]) -> Table:
    """Accuracy by step, and the time of ten steps of a worker since the last point: of each figure the fastest cell."""
    trained = [(item, item.cell) for item in items if item.cell and item.cell.medians
               and any(name.startswith(_ACCURACY) for name in item.cell.by_figure)]  # fmt: skip
    rows, shown = list[tuple[str, ...]](), set[int]()
    for exhibit in published.exhibits:
        members = [one for one in trained if exhibit.cell(one[0]) is not None and id(one[0]) not in shown]
        if not members:
            continue
        item, cell = min(members, key=lambda one: median(one[1].medians))
        shown |= {id(one) for one, _ in members}
        accuracy, seconds = _by_step(cell, _ACCURACY), _by_step(cell, _SECONDS)
        for (last, then), (step, now) in pairwise(((0, 0.0), *seconds.items())):
            ten = 10 * item["workers"] * (now - then) / (step - last)
            rows.append((exhibit.about, item.name, str(step), f"{accuracy[step]:.3f}", digits(ten * 1e3)))
    title = f"training curves of {published.reference}: the fastest cell of each figure, medians of launches"
    return Table(title, ("figure", "cell", "step", "accuracy", "ten steps (ms)"), tuple(rows))


def _by_step(cell: Cell, name: str) -> dict[int, float]:
    """The medians over launches of a figure, by step."""
    medians = {int(figure.removeprefix(name)): median(values) for figure, values in cell.by_figure.items()
             if figure.startswith(name)}  # fmt: skip
    return dict(sorted(medians.items()))
