"""Every cell in tables: what launches took, by parameters and place; what comparisons found, and these as JSON.

Tables of launches describe. What differs, and whether by more than chance, comparisons say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from msgspec import to_builtins

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate
from collbench.analysis.launches import unequal
from collbench.analysis.results import Cell, without_collector
from collbench.report.caveats import (
    cautions,
    cpu_waited,
    differing_facts,
    differing_results,
    differing_transports,
    each_once,
    of_launches,
)
from collbench.report.headings import (
    column_heading,
    common_case,
    heading_of,
    image_and_place,
    is_program,
    place_order,
    row_order,
    shared_image,
    side_column,
    side_names,
    software,
    table_key,
    value_text,
    varying,
    versus,
)
from collbench.report.numbers import Ends, MeasuredWork, Units, between, is_numbered, percents
from collbench.report.tables import INTERVAL, Table, in_columns_of
from collbench.report.verdict import slow_text, whole_reason
from collbench.schema.case import Case
from collbench.units import counted

# What launches took.


@without_collector()
def launch_tables(cells: Mapping[Case, Cell]) -> list[Table]:
    """One for each collective, dtype, driver and number of ranks, and for each program."""
    keyed = sorted(((table_key(case), cell) for case, cell in cells.items()), key=lambda entry: entry[0])
    return [launch_table([cell for _, cell in group]) for _, group in groupby(keyed, key=lambda entry: entry[0])]


def launch_table(cells: Sequence[Cell]) -> Table:
    """The cells of one operation or program by its parameters; of these the host first."""
    names = varying([cell.case for cell in cells])
    measures = list(dict.fromkeys(cell.case["measure"] for cell in cells))
    ordered = sorted(
        (cell for cell in cells if cell.medians or cell.failed),
        key=lambda cell: (row_order(cell.case, names), measures.index(cell.case["measure"]), place_order(cell.case)),
    )
    columns = _parameters([cell.case for cell in ordered], names)
    images = [software(cell.case.where) for cell in ordered]
    columns |= {"image": images} if len(set(images)) > 1 else {}
    columns["place"] = [cell.case.where.text for cell in ordered]
    columns |= _times(ordered) | _figures(ordered)
    columns["failed"] = [str(cell.failed or "") for cell in ordered]
    numbers = {len(cell.medians) for cell in ordered}
    if len(numbers) > 1:
        columns["launches"] = [str(len(cell.medians)) for cell in ordered]
    title = heading_of(cells, cells[0].case.without(names) if is_program(cells[0].case) else None)
    title += "".join(f", {image}" for image in dict.fromkeys(images) if image and "image" not in columns)
    title += f", {counted(numbers.pop(), 'launch', 'launches')}" if len(numbers) == 1 else ""
    return Table.of(title, columns, (*_transports(ordered), *cautions(cells)))


def _parameters(cases: Sequence[Case], names: Sequence[str]) -> dict[str, list[str]]:
    return {column_heading(name): [value_text(case, name) for case in cases] for name in names}


def _transports(cells: Sequence[Cell]) -> list[str]:
    """`transport ob1: sm (openmpi host, openmpi multi ipc)`, without the places where it is the same in all."""
    lines = [(f"transport {name}", image_and_place(cell)) for cell in cells for name in sorted(cell.transports)]
    return each_once(lines) if len({line for line, _ in lines}) > 1 else list(dict.fromkeys(line for line, _ in lines))


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


def tables(comparisons: Sequence[Comparison], narrow: bool = False) -> list[Table]:
    """One for each collective, dtype, driver and number of ranks, and for each program.

    `narrow`, for a column of a paper: one for each image too, with what the base took, the difference and the verdict.
    """
    keys = {
        id(comparison): (table_key(common_case(comparison.pair)), shared_image(comparison.pair) * narrow)
        for comparison in comparisons
    }
    ordered = sorted(comparisons, key=lambda one: (keys[id(one)], _order(one)))
    make = _narrow if narrow else _table
    return [make(list(group)) for _, group in groupby(ordered, key=lambda one: keys[id(one)])]


def _order(comparison: Comparison) -> tuple[object, ...]:
    base, other = comparison.pair.base.case, comparison.pair.other.case
    places = (base.where.image or "", place_order(base), place_order(other))
    return (*places, comparison.pair.other_name, base["size"])


def _table(rows: Sequence[Comparison]) -> Table:
    """Rows of collectives by sides, then sizes; of programs by parameters, with two sides in title and headings."""
    names = varying([common_case(row.pair) for row in rows])
    program = is_program(rows[0].pair.base.case)
    if program:
        rows = sorted(rows, key=lambda one: (row_order(common_case(one.pair), names), _order(one)))
    cells = list({id(cell): cell for row in rows for cell in (row.pair.base, row.pair.other)}.values())
    engines = {cell.case.where.engine for cell in cells if not cell.case.where.on_host}
    cases = [common_case(row.pair) for row in rows]
    sides = {"image": [shared_image(row.pair) for row in rows],
             "sides": [side_names(row.pair, len(engines) > 1) for row in rows]}  # fmt: skip
    shared = {name: values[0] for name, values in sides.items() if program and len(set(values)) == 1}
    apart = {name: values for name, values in sides.items() if name not in shared}
    parameters = _parameters(cases, names)
    columns = parameters | apart if program else apart | parameters
    columns["launches"] = list(map(row_launches, rows))
    columns |= _both_sides(rows, program, "sides" in shared) | in_columns_of(rows, _JUDGED)
    cpu_differs = any(" and " in share for share in columns[CPU_COLUMN])
    if program and not cpu_differs:  # the same on both sides
        del columns[CPU_COLUMN]
    title = ", ".join(filter(None, (heading_of(cells, cases[0].without(names)), *shared.values())))
    return Table.of(title, columns, _notes(rows, cells, cpu_differs))


def _narrow(rows: Sequence[Comparison]) -> Table:
    """What cells have in common stands in the title; the name of a base that all have stands in headings alone."""
    cases, pairs = [common_case(row.pair) for row in rows], [row.pair for row in rows]
    cells = list({id(cell): cell for pair in pairs for cell in (pair.base, pair.other)}.values())
    names, (head, sides) = varying(cases), side_column(pairs)
    base = pairs[0].base_name if head != "sides" else "base"
    one = len(set(sides)) == 1
    apart = {} if one else {head: sides}
    shared = [heading_of(cells, cases[0].without(names)), shared_image(pairs[0]), versus(pairs[0]) * one]
    measured: list[MeasuredWork] = [(row.pair.base.work, row.base.value) if row.base else None for row in rows]
    units = Units([value for value in measured if value])
    rates = {name: entries for name, entries in units.rates(base, measured).items() if all(entries)}
    judged = in_columns_of(rows, _JUDGED) | {"verdict": [row.verdict for row in rows]}
    del judged[CPU_COLUMN]
    columns = {**apart, **_parameters(cases, names), **(rates or units.times(base, measured)), **judged}
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
    return (*differing_results(rows), *(line for line, holds in explained.items() if holds), *cpu_waited(rows),
            *of_launches(rows), *differing_facts(rows), *differing_transports(rows), *cautions(cells))  # fmt: skip


def _both_sides(rows: Sequence[Comparison], program: bool, named: bool) -> dict[str, list[str]]:
    """The times of both sides, in the same units; of collectives always in microseconds."""
    pair = rows[0].pair
    sides = {pair.base_name if named else "base": [(row.pair.base.work, row.base) for row in rows],
             pair.other_name if named else "other": [(row.pair.other.work, row.other) for row in rows]}  # fmt: skip
    known = [(work, time.value) for side in sides.values() for work, time in side if time is not None]
    units = Units(known if program else [])
    columns: dict[str, list[str]] = {}
    for name, side in sides.items():
        values: list[MeasuredWork] = [(work, time.value) if time else None for work, time in side]
        ends: list[Ends] = [(work, time.interval) if time and time.interval else None for work, time in side]
        columns |= units.rates(name, values, f"{name} rate") if program else {}
        columns |= units.times(name, values, f"{name} time") | {f"{name}{INTERVAL}": units.spans(ends)}
    return columns


def row_launches(comparison: Comparison) -> str:
    """How many launches of each side are used, and of how many: in blocks, those that both sides have."""
    pair = comparison.pair
    used, measured = (" and ".join(dict.fromkeys(map(str, both)))
                      for both in (comparison.launches, (len(pair.base.medians), len(pair.other.medians))))  # fmt: skip
    return used if used == measured else f"{used} of {measured}"


def _cpu_shares(comparison: Comparison) -> str:
    """`0.99 and 0.47`: CPU seconds in a second of each side, one number where they agree; empty where unknown."""
    shares = ["" if used is None else f"{used.share:.2f}" for used in comparison.cpu]
    return " and ".join(dict.fromkeys(shares)) if all(shares) else ""


def verdict(comparison: Comparison) -> str:
    """The verdict, and what it lacks or why there is none; or what a median hides."""
    if comparison.verdict in ("unclear", "not comparable"):
        return f"{comparison.verdict} ({whole_reason(comparison)})"
    return comparison.verdict if comparison.slow is None else f"{comparison.verdict} ({slow_text(comparison.slow)})"


#: What was found, after what was measured.
_JUDGED: dict[str, Callable[[Comparison], str]] = {
    CPU_COLUMN: _cpu_shares, "difference (%)": lambda one: percents(one.ratio.value) if one.ratio else "",
    f"difference{INTERVAL}": lambda one: between((one.ratio and one.ratio.interval) or (), percents),
    "verdict": verdict,
}  # fmt: skip


# For programs.


def document(comparisons: Sequence[Comparison], margin: float, doubts: Sequence[str] = ()) -> dict[str, Any]:
    """All comparisons for programs: seconds and ratios, intervals as pairs, null where there is none.

    `notes` are the remarks below the tables, `doubts` the records that do not agree with their samples files.
    """
    notes = dict.fromkeys(note for table in tables(comparisons) for note in table.notes)
    entries = [entry(comparison) for comparison in comparisons]
    return {"margin": margin, "comparisons": entries, "notes": list(notes), "doubts": list(doubts)}


def entry(comparison: Comparison) -> dict[str, Any]:
    """One comparison, as `document` has it."""
    pair, ratio, slow = comparison.pair, comparison.ratio, comparison.slow
    sides = {
        side: {"name": name, "case": to_builtins(cell.case), **_numbers(time),
               "cpu": None if cpu is None else {"seconds": cpu.seconds, "wall": cpu.wall, "share": cpu.share}}
        for side, name, cell, time, cpu in (
            ("base", pair.base_name, pair.base, comparison.base, comparison.cpu[0]),
            ("other", pair.other_name, pair.other, comparison.other, comparison.cpu[1]),
        )
    }  # fmt: skip
    return {
        **sides,
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
