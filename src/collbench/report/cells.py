"""Every cell in tables: what launches took, by parameters and place; what comparisons found, and these as JSON.

Tables of launches describe. What differs, and whether by more than chance, comparisons say. A
self-test, in which nothing differs, says what launches can show and how many of them decide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from msgspec import to_builtins

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate
from collbench.analysis.launches import unequal
from collbench.analysis.planning import STEPS, Cost, Movement, Power
from collbench.analysis.results import Cell, grouped, without_collector
from collbench.report import caveats, headings
from collbench.report.headings import common_case, is_program, operation, size_text
from collbench.report.numbers import Ends, MeasuredWork, Units, between, change, difference_text, is_numbered, percents
from collbench.report.tables import INTERVAL, Table, in_columns_of
from collbench.report.verdict import slow_text, whole_reason
from collbench.schema.case import Case
from collbench.units import counted, format_long

# What launches took.


@without_collector()
def launch_tables(cells: Mapping[Case, Cell]) -> list[Table]:
    """One for each collective, dtype, driver and number of ranks, and for each program."""
    groups = grouped((headings.table_key(case), cell) for case, cell in cells.items())
    return [launch_table(groups[key]) for key in sorted(groups)]


def launch_table(cells: Sequence[Cell]) -> Table:
    """The cells of one operation or program by its parameters; of these the host first."""
    names = headings.varying([cell.case for cell in cells])
    measures = list(dict.fromkeys(cell.case["measure"] for cell in cells))

    def order(cell: Cell) -> tuple[object, ...]:
        case = cell.case
        return headings.row_order(case, names), measures.index(case["measure"]), headings.place_order(case.where)

    ordered = sorted((cell for cell in cells if cell.medians or cell.failed), key=order)
    columns = headings.parameter_columns([cell.case for cell in ordered], names)
    images = [headings.software(cell.case.where) for cell in ordered]
    columns |= {"image": images} if len(set(images)) > 1 else {}
    columns["place"] = [cell.case.where.text for cell in ordered]
    columns |= _times(ordered) | _figures(ordered)
    columns["failed"] = [str(cell.failed or "") for cell in ordered]
    numbers = {len(cell.medians) for cell in ordered}
    if len(numbers) > 1:
        columns["launches"] = [str(len(cell.medians)) for cell in ordered]
    title = headings.heading_of(cells, cells[0].case.without(names) if is_program(cells[0].case) else None)
    title += "".join(f", {image}" for image in dict.fromkeys(images) if image and "image" not in columns)
    title += f", {counted(numbers.pop(), 'launch', 'launches')}" if len(numbers) == 1 else ""
    steps = headings.reductions((cell.case, messages) for cell in ordered for messages in cell.messages)
    return Table.of(title, columns, (*_transports(ordered), *steps, *caveats.cautions(cells)))


def _transports(cells: Sequence[Cell]) -> list[str]:
    """`transport ob1: sm (openmpi host, openmpi multi ipc)`, without the places where it is the same in all."""
    places = [(cell, headings.image_and_place(cell.case)) for cell in cells]
    lines = [(f"transport {name}", place) for cell, place in places for name in sorted(cell.transports)]
    transports = list(dict.fromkeys(line for line, _ in lines))
    return caveats.each_once(lines) if len(transports) > 1 else transports


def _times(cells: Sequence[Cell]) -> dict[str, list[str]]:
    medians: list[MeasuredWork] = [(cell.work, median(cell.medians)) if cell.medians else None for cell in cells]
    ends: list[Ends] = [(cell.work, (min(cell.medians), max(cell.medians))) if cell.medians else None for cell in cells]
    units = Units([value for value in medians if value])
    return {**units.rates("rate", medians), **units.times("median", medians),
            units.heading("min .. max"): units.spans(ends)}  # fmt: skip


def _figures(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """What checks measured, such as the accuracy of what was trained: the median over the launches."""
    names = dict.fromkeys(name for cell in cells for name in cell.by_figure if not is_numbered(name))
    return {name: [f"{median(cell.by_figure[name]):.3g}" if name in cell.by_figure else "" for cell in cells]
            for name in names}  # fmt: skip


# Comparisons.

CPU_COLUMN = "CPU s/s"

#: Where both cells of a pair may be.
_SIDES = ("image", "side")


def tables(comparisons: Sequence[Comparison], narrow: bool = False) -> list[Table]:
    """One for each collective, dtype, driver and number of ranks, and for each program.

    `narrow`, for a column of a paper: one for each image too, with what the base took, the difference and the verdict.
    """
    sides = _SIDES if narrow else ()
    groups = grouped(
        ((headings.table_key(common_case(row.pair)), *(headings.shared(row.pair, axis) for axis in sides)), row)
        for row in sorted(comparisons, key=_order)
    )
    make = _narrow if narrow else _table
    return [make(groups[key]) for key in sorted(groups)]


def _order(comparison: Comparison) -> tuple[object, ...]:
    base, other = comparison.pair.base.case, comparison.pair.other.case
    places = (base.where.image or "", headings.place_order(base.where), headings.place_order(other.where))
    return (*places, comparison.pair.other_name, base["size"])


def _table(rows: Sequence[Comparison]) -> Table:
    """Rows of collectives by sides, then sizes; of programs by parameters, with two sides in title and headings."""
    names = headings.varying([common_case(row.pair) for row in rows])
    program = is_program(rows[0].pair.base.case)
    if program:
        rows = sorted(rows, key=lambda row: (headings.row_order(common_case(row.pair), names), _order(row)))
    cells = headings.cells_of_pairs(row.pair for row in rows)
    engines = {cell.case.where.engine for cell in cells if not cell.case.where.on_host}
    cases = [common_case(row.pair) for row in rows]
    sides = {**{axis: [headings.shared(row.pair, axis) for row in rows] for axis in _SIDES},
             "sides": [headings.side_names(row.pair, len(engines) > 1) for row in rows]}  # fmt: skip
    shared = {name: values[0] for name, values in sides.items() if program and len(set(values)) == 1}
    apart = {name: values for name, values in sides.items() if name not in shared}
    parameters = headings.parameter_columns(cases, names)
    columns = parameters | apart if program else apart | parameters
    columns["launches"] = list(map(_launches, rows))
    columns |= _both_sides(rows, program, "sides" in shared) | in_columns_of(rows, _JUDGED)
    cpu_differs = any(" and " in share for share in columns[CPU_COLUMN])
    if program and not cpu_differs:  # the same on both sides
        del columns[CPU_COLUMN]
    title = ", ".join(filter(None, (headings.heading_of(cells, cases[0].without(names)), *shared.values())))
    return Table.of(title, columns, _notes(rows, cells, cpu_differs))


def _narrow(rows: Sequence[Comparison]) -> Table:
    """What cells have in common stands in the title; the name of a base that all have stands in headings alone."""
    cases, pairs = [common_case(row.pair) for row in rows], [row.pair for row in rows]
    cells, names, (head, sides) = headings.cells_of_pairs(pairs), headings.varying(cases), headings.side_column(pairs)
    base = pairs[0].base_name if head != "sides" else "base"
    alike = len(set(sides)) == 1
    shared = [headings.heading_of(cells, cases[0].without(names)),
              *(headings.shared(pairs[0], axis) for axis in _SIDES), headings.versus(pairs[0]) * alike]  # fmt: skip
    measured: list[MeasuredWork] = [(row.pair.base.work, row.base.value) if row.base else None for row in rows]
    units = Units([value for value in measured if value])
    rates = {name: entries for name, entries in units.rates(base, measured).items() if all(entries)}
    judged = in_columns_of(rows, _JUDGED) | {"verdict": [row.verdict for row in rows]}
    del judged[CPU_COLUMN]
    apart = {} if alike else {head: sides}
    columns = {**apart, **headings.parameter_columns(cases, names), **(rates or units.times(base, measured)), **judged}
    return Table.of(", ".join(filter(None, shared)), columns, _notes(rows, cells, False))


def _notes(rows: Sequence[Comparison], cells: Sequence[Cell], cpu_differs: bool) -> tuple[str, ...]:
    """What a difference is, which is not that of the two medians beside it; how many have each verdict; caveats."""
    verdicts = Counter(comparison.verdict for comparison in rows).most_common()
    sizes = max(comparison.sizes for comparison in rows)
    how = ("the middle of the ratios within blocks of launches" if rows[0].blocks
           else "between the middles of both sides, whose launches were not interleaved")  # fmt: skip
    explained = {
        f"difference: {how}; positive: the other side is slower": True,
        f"verdicts: {', '.join(f'{number} {name}' for name, number in verdicts)}": True,
        f"intervals hold for the {sizes} sizes of an operation at once": sizes > 1,
        f"{CPU_COLUMN}: CPU seconds in each second of the program, its start included, base and other": cpu_differs,
    }
    lines = (line for line, holds in explained.items() if holds)
    return (*caveats.differing_results(rows), *lines, *caveats.cpu_waited(rows), *caveats.of_launches(rows),
            *caveats.differing_facts(rows), *caveats.differing_transports(rows), *caveats.cautions(cells))  # fmt: skip


def _both_sides(rows: Sequence[Comparison], program: bool, named: bool) -> dict[str, list[str]]:
    """The times of both sides, in the same units; of collectives always in microseconds."""
    pair = rows[0].pair
    sides = {pair.base_name if named else "base": [(row.pair.base.work, row.base) for row in rows],
             pair.other_name if named else "other": [(row.pair.other.work, row.other) for row in rows]}  # fmt: skip
    units = Units([(work, time.value) for side in sides.values() for work, time in side if time] if program else [])
    columns: dict[str, list[str]] = {}
    for name, side in sides.items():
        values: list[MeasuredWork] = [(work, time.value) if time else None for work, time in side]
        ends: list[Ends] = [(work, time.interval) if time and time.interval else None for work, time in side]
        columns |= units.rates(name, values, f"{name} rate") if program else {}
        columns |= units.times(name, values, f"{name} time") | {f"{name}{INTERVAL}": units.spans(ends)}
    return columns


def _launches(comparison: Comparison) -> str:
    """How many launches of each side are used, and of how many: in blocks, those that both sides have."""
    pair = comparison.pair
    used, measured = (" and ".join(dict.fromkeys(map(str, both)))
                      for both in (comparison.launches, (len(pair.base.medians), len(pair.other.medians))))  # fmt: skip
    return used if used == measured else f"{used} of {measured}"


def _cpu_shares(comparison: Comparison) -> str:
    """`0.99 and 0.47`: CPU seconds in a second of each side, one number where they agree; empty where unknown."""
    shares = ["" if used is None else f"{used.share:.2f}" for used in comparison.cpu]
    return " and ".join(dict.fromkeys(shares)) if all(shares) else ""


def _verdict(comparison: Comparison) -> str:
    """The verdict, and what it lacks or why there is none; or what a median hides."""
    if comparison.verdict in ("unclear", "not comparable"):
        return f"{comparison.verdict} ({whole_reason(comparison)})"
    return comparison.verdict if comparison.slow is None else f"{comparison.verdict} ({slow_text(comparison.slow)})"


#: What was found, after what was measured.
_JUDGED: dict[str, Callable[[Comparison], str]] = {
    CPU_COLUMN: _cpu_shares, "difference (%)": lambda row: percents(row.ratio.value) if row.ratio else "",
    f"difference{INTERVAL}": lambda row: between((row.ratio and row.ratio.interval) or (), percents),
    "verdict": _verdict,
}  # fmt: skip


def document(comparisons: Sequence[Comparison], margin: float, doubts: Sequence[str] = ()) -> dict[str, Any]:
    """All comparisons for programs: seconds and ratios, intervals as pairs, null where there is none.

    `notes` are the remarks below the tables, `doubts` the records that do not agree with their samples files.
    """
    notes = dict.fromkeys(note for table in tables(comparisons) for note in table.notes)
    return {"margin": margin, "comparisons": list(map(entry, comparisons)), "notes": list(notes),
            "doubts": list(doubts)}  # fmt: skip


def entry(comparison: Comparison) -> dict[str, Any]:
    """One comparison, as `document` has it."""
    pair, ratio, slow = comparison.pair, comparison.ratio, comparison.slow
    base, other = (
        {"name": name, "case": to_builtins(cell.case), **_numbers(time),
         "cpu": cpu and {**cpu._asdict(), "share": cpu.share}}
        for name, cell, time, cpu in ((pair.base_name, pair.base, comparison.base, comparison.cpu[0]),
                                      (pair.other_name, pair.other, comparison.other, comparison.cpu[1]))
    )  # fmt: skip
    return {
        "base": base, "other": other,
        "ratio": None if ratio is None else _numbers(ratio), "blocks": comparison.blocks,
        "sizes": comparison.sizes,
        "paper_diff_percent": comparison.paper_diff, "launches": comparison.launches,
        "left_out": comparison.left_out, "contended": comparison.contended,
        "results_differ": [to_builtins(difference) for difference in unequal(pair)],
        "slow": None if slow is None else {"launches": [slow.base, slow.other], "means": slow.means},
        "verdict": comparison.verdict, "why": whole_reason(comparison), "launches_more": comparison.launches_more,
    }  # fmt: skip


def _numbers(estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {"value": None, "interval": None, "launches": 0}
    return {"value": estimate.value, "interval": estimate.interval, "launches": estimate.n}


# What launches can show.


@dataclass(frozen=True)
class SelfTest:
    """What a self-test found: `rate` of false positives, by comparison the `smallest` difference seen, a share.

    `moved` are the yardsticks over its launches, `cost` what the spread of launches costs.
    """

    comparisons: tuple[Comparison, ...]
    rate: float
    smallest: tuple[float | None, ...]
    launches: int
    moved: tuple[Movement, ...]
    cost: Cost | None


def selftest_tables(test: SelfTest) -> list[Table]:
    """The answer in a sentence, and one table, rows by operation and size."""
    columns = in_columns_of([*zip(test.comparisons, test.smallest, strict=True)], {
        "operation": lambda row: operation(row[0].pair.base.case),
        "size (B)": lambda row: size_text(row[0].pair.base.case),
        "difference": lambda row: difference_text(row[0].ratio) if row[0].ratio else "",
        "verdict": lambda row: _verdict(row[0]),
        "seen from": lambda row: _percent(row[1]) if row[1] is not None else f"none up to {_percent(STEPS[-1])}",
    })  # fmt: skip
    notes = (
        "both sides are the same: at most 1 question of 20 should call any size different; here "
        f"{test.rate * 100:.1f} % of random relabellings of the sides do",
        "seen from: the least loss, of one size alone, that 80 % of relabellings call slower",
        restlessness(test.moved, test.cost),
    )
    return [Table.of(_answer(test), columns, notes)]


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _answer(test: SelfTest) -> str:
    """`7 launches a side: none of 6 equal cells called different; a loss of 7 % is seen in half of them, ...`."""
    wrong = sum(comparison.verdict in ("slower", "faster") for comparison in test.comparisons)
    cells = counted(len(test.comparisons), "equal cell")
    start = f"{test.launches} launches a side: {wrong or 'none'} of {cells} called different"
    smallest = sorted(math.inf if least is None else least for least in test.smallest)
    middle, last = smallest[(len(smallest) - 1) // 2], smallest[-1]
    if math.isinf(middle):
        return f"{start}; differences of {_percent(STEPS[-1])} are not seen in most of them"
    in_all = "" if math.isinf(last) else f", of {_percent(last)} in every cell"
    where = "every cell" if middle == last else f"half of them{in_all}"
    return f"{start}; a loss of {_percent(middle)} is seen in {where}"


def restlessness(moved: tuple[Movement, ...], cost: Cost | None) -> str:
    """How far the machine moved, how far launches spread, and what a difference therefore takes."""
    shares = ", ".join(f"{reading.name} by {_percent(reading.share)}" for reading in moved)
    machine = f"the machine moved: {shares}" if moved else "no yardstick could be read"
    if cost is None:
        return machine
    launches, spread = counted(cost.launches, "launch", "launches"), f"launches spread by {cost.spread * 100:.1f} %"
    return f"{machine}; {spread}, so a difference of {cost.difference * 100:g} % takes about {launches} a side"


def selftest_document(test: SelfTest) -> dict[str, Any]:
    """The same for programs; differences as shares."""
    cells = [
        {"operation": operation(comparison.pair.base.case), "size": comparison.pair.base.case["size"],
         "verdict": comparison.verdict, "why": whole_reason(comparison),
         "ratio": comparison.ratio and comparison.ratio.value,
         "interval": comparison.ratio and comparison.ratio.interval, "smallest": least}
        for comparison, least in zip(test.comparisons, test.smallest, strict=True)
    ]  # fmt: skip
    moved = {reading.name: {"least": reading.least, "largest": reading.largest, "readings": reading.readings}
             for reading in test.moved}  # fmt: skip
    return {"launches": test.launches, "false_positive_rate": test.rate, "cells": cells, "yardsticks": moved,
            "cost": None if test.cost is None else asdict(test.cost)}  # fmt: skip


def power_table(numbers: Sequence[tuple[Power, float]], run: str, margin: float, in_turns: bool) -> Table:
    """What numbers of launches decide, each with how long they take (s), if they spread as in a run.

    `in_turns`: worlds of that run measured alternately, as duets.
    """
    cells = len(numbers[0][0].differences)
    middle, most = (cells - 1) // 2, max(math.ceil(0.9 * cells) - 1, 0)
    columns = in_columns_of(numbers, {
        "launches": lambda row: str(row[0].launches), "time": lambda row: format_long(row[1]),
        "seen in half": lambda row: change(1 + row[0].differences[middle]).removeprefix("+"),
        "seen in 90 %": lambda row: change(1 + row[0].differences[most]).removeprefix("+"),
        f"same within {margin * 100:g} %": lambda row: f"{row[0].same} of {cells}",
    })  # fmt: skip
    notes = (
        "seen: the least difference that 80 % of runs show, in half of the comparisons and in 90 % of them",
        f"same: comparisons that 80 % of runs call the same within {margin * 100:g} %, if nothing differs",
    )
    blocks = "" if in_turns else f"; {run} was in blocks, and duets spread less"
    title = f"what launches decide of {counted(cells, 'comparison')}, if they spread as in {run}{blocks}"
    return Table.of(title, columns, notes)
