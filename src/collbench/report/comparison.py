"""Comparisons as tables and as JSON: a table for each operation and number of ranks, rows by sides and size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.analysis.duets import effects
from collbench.analysis.estimate import FEWEST, Estimate
from collbench.analysis.launches import MENTIONED, SLOW
from collbench.analysis.launches import dependent as launches_dependent
from collbench.analysis.observations import Cell, Pair
from collbench.report import remarks
from collbench.report.cells import cautions, heading_of
from collbench.report.headings import place_order, table_key
from collbench.report.launches import both_sides
from collbench.report.parameters import column_heading, is_program, row_order, value_text, varying
from collbench.report.programs import CPU_COLUMN, cpu_document, cpu_remarks, cpu_shares
from collbench.report.reasons import slow_text, whole_reason
from collbench.report.style import format_us
from collbench.report.tables import Table, without_empty
from collbench.schema.case import Case, names_in
from collbench.units import counted, format_size

#: What was found, after what was measured.
_JUDGED = (CPU_COLUMN, "difference (%)", "difference 95 %", "verdict")
COLUMNS = ("image", "sides", "size (B)", "launches", "base (us)", "base 95 %", "other (us)", "other 95 %",
           *_JUDGED)  # fmt: skip


def tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """A table for each collective, dtype, driver and number of ranks."""
    common = {id(comparison): common_case(comparison.pair) for comparison in comparisons}
    keys = {name: table_key(case) for name, case in common.items()}
    ordered = sorted(comparisons, key=lambda comparison: (keys[id(comparison)], _order(comparison)))
    result = []
    for _, group in groupby(ordered, key=lambda comparison: keys[id(comparison)]):
        rows = list(group)
        cells = [cell for comparison in rows for cell in (comparison.pair.base, comparison.pair.other)]
        unique = list({id(cell): cell for cell in cells}.values())
        with_engine = len({cell.case.where.engine for cell in unique if not cell.case.where.on_host}) > 1
        findings = (*remarks.differing_results(rows), *_explained(rows), *cpu_remarks(rows))
        notes = (*findings, *of_launches(rows), *what_differs(rows), *cautions(unique))
        cases = [common[id(comparison)] for comparison in rows]
        make = _of_program if is_program(cases[0]) else _of_collective
        result.append(replace(without_empty(make(rows, cases, unique, with_engine)), notes=notes))
    return result


def _of_collective(
    rows: Sequence[Comparison], cases: Sequence[Case], cells: Sequence[Cell], with_engine: bool
) -> Table:
    body = tuple(_row(comparison, with_engine) for comparison in rows)
    return Table(heading_of(cells, cases[0]), COLUMNS, body)


def _of_program(rows: Sequence[Comparison], cases: Sequence[Case], cells: Sequence[Cell], with_engine: bool) -> Table:
    """Parameters as columns; both sides by their names, where there are only two."""
    names = varying(cases)
    keys = [row_order(case, names) for case in cases]
    order = sorted(range(len(rows)), key=lambda row: (keys[row], _order(rows[row])))
    rows, cases = [rows[row] for row in order], [cases[row] for row in order]
    sides = [side_names(comparison.pair, with_engine) for comparison in rows]
    images = [_image(comparison.pair) for comparison in rows]
    columns: dict[str, Sequence[str]] = {
        column_heading(name): [value_text(case, name) for case in cases] for name in names
    }
    columns |= {name: entries for name, entries in (("image", images), ("sides", sides)) if len(set(entries)) > 1}
    columns["launches"] = list(map(row_launches, rows))
    columns |= both_sides(rows, ("base", "other") if "sides" in columns else None)
    columns |= {name: [judged[index] for judged in map(_judged, rows)] for index, name in enumerate(_JUDGED)}
    if not any(" and " in share for share in columns[CPU_COLUMN]):  # the same on both sides
        del columns[CPU_COLUMN]
    facts = (heading_of(cells, cases[0].without(names)), *("" if name in columns else values[0]
             for name, values in (("image", images), ("sides", sides))))  # fmt: skip
    title = ", ".join(fact for fact in facts if fact)
    return Table(title, tuple(columns), tuple(zip(*columns.values(), strict=True)))


def common_case(pair: Pair) -> Case:
    """What is measured on both sides, without what they differ in; the number of ranks is of the base."""
    base, other = pair.base.case, pair.other.case
    differing = [name for name in names_in((base, other)) if name != "ranks" and base[name] != other[name]]
    return base.without(differing) if differing else base


def _order(comparison: Comparison) -> tuple[object, ...]:
    base, other = comparison.pair.base.case, comparison.pair.other.case
    places = (base.where.image or "", place_order(base), place_order(other))
    return (*places, comparison.pair.other_name, base["size"])


def _row(comparison: Comparison, with_engine: bool) -> tuple[str, ...]:
    size = format_size(comparison.pair.base.case["size"])
    return (_image(comparison.pair), side_names(comparison.pair, with_engine), size, row_launches(comparison),
            *_side(comparison.base), *_side(comparison.other), *_judged(comparison))  # fmt: skip


def _image(pair: Pair) -> str:
    """That of both sides; empty where they differ."""
    base, other = pair.base.case.where.image, pair.other.case.where.image
    return base or "" if base == other else ""


def _judged(comparison: Comparison) -> tuple[str, ...]:
    """CPU seconds, the difference, and the verdict."""
    return (cpu_shares(comparison), *difference(comparison), verdict(comparison))


def versus(pair: Pair) -> str:
    """The side whose difference is shown, and what it is compared with."""
    return f"{pair.other_name} vs {pair.base_name}"


def side_names(pair: Pair, with_engine: bool) -> str:
    """`single strict vs host (docker)`: the names of both sides, the engine where engines differ, the place of both."""
    base, other = pair.base.case.where, pair.other.case.where
    engines = dict.fromkeys(where.engine for where in (base, other) if not where.on_host)
    names = versus(pair)
    apart = base.engine != other.engine and base.text != other.text
    if apart and not any(where.text in names for where in (base, other)):  # of two runs
        return f"{names} ({' and '.join(f'{where.engine} {where.text}' for where in (other, base))})"
    words = []
    differs = with_engine or base.engine != other.engine
    if engines and differs and not set(engines) & set(names.split()):
        words.append(" and ".join(engines))
    unfiltered = dict.fromkeys(where.text.removesuffix(f" seccomp {where.seccomp}") for where in (base, other))
    if base.text == other.text and not base.on_host:
        words.append(base.text)
    elif len(unfiltered) == 1 and not base.on_host:  # --by seccomp
        words += unfiltered
    return f"{names} ({' '.join(words)})" if words else names


def verdict(comparison: Comparison) -> str:
    """The verdict, and what it lacks or why there is none; or what a median hides."""
    if comparison.verdict in ("unclear", "not comparable"):
        return f"{comparison.verdict} ({whole_reason(comparison)})"
    return comparison.verdict if comparison.slow is None else f"{comparison.verdict} ({slow_text(comparison.slow)})"


def row_launches(comparison: Comparison) -> str:
    """How many launches of each side are used, and of how many: in blocks, those that both sides have."""
    used = _both(*comparison.launches)
    measured = _both(len(comparison.pair.base.medians), len(comparison.pair.other.medians))
    return used if used == measured else f"{used} of {measured}"


def _both(base: int, other: int) -> str:
    return str(base) if base == other else f"{base} and {other}"


def _side(time: Estimate | None) -> tuple[str, str]:
    if time is None:
        return "", ""
    return format_us(time.value), "" if time.interval is None else " .. ".join(map(format_us, time.interval))


def difference(comparison: Comparison) -> tuple[str, str]:
    """`+3.1`, `+2.0 .. +4.5`: the other side over the base, and its interval, in per cent."""
    if comparison.ratio is None or comparison.percent is None:
        return "", ""
    ends = comparison.ratio.interval or ()
    return f"{comparison.percent:+.1f}", " .. ".join(f"{(end - 1) * 100:+.1f}" for end in ends)


def _explained(rows: Sequence[Comparison]) -> list[str]:
    verdicts = Counter(comparison.verdict for comparison in rows).most_common()
    sizes = max(comparison.sizes for comparison in rows)
    return [
        of_difference(rows[0].blocks),
        f"verdicts: {', '.join(f'{number} {name}' for name, number in verdicts)}",
        *([f"intervals hold for all {sizes} sizes of an operation at once"] if sizes > 1 else []),
    ]


def of_difference(in_blocks: bool) -> str:
    """What a difference is: not that of the two medians beside it."""
    how = ("the middle of the ratios within blocks of launches" if in_blocks
           else "between the middles of both sides, whose launches were not interleaved")  # fmt: skip
    return f"difference: {how}; positive: the other side is slower"


def of_launches(rows: Sequence[Comparison], planned: bool = True) -> list[str]:
    """What limits the verdicts on these cells: too few launches, drift, dependence, and slow launches.

    `planned`: rows say how many launches they lack.
    """
    lines = []
    if planned and any(one.launches_more is not None and one.launches[0] >= FEWEST for one in rows):
        lines.append("needs about k more launches: with so many more, a verdict has a probability of 80 %")
    if not rows[0].blocks:
        lines.append(NOT_INTERLEAVED)
    elif rows[0].pair.base.until_decided:
        lines.append("launched until decided: intervals hold after any number of blocks")
    lines += dependent(rows)
    lines += in_turns(rows)
    left_out = sum(comparison.left_out for comparison in rows)
    if left_out:
        lines.append(f"launches left out, because they were measured differently from their partners: {left_out}")
    if contended := sum(comparison.contended for comparison in rows):
        side = " on either side" if rows[0].blocks else ""
        lines.append(f"launches left out, because tasks waited for a CPU{side}: {contended}")
    if any(comparison.slow is not None for comparison in rows):
        lines.append(f"over {SLOW} times the median: occasional slow launches or samples, which a median does not show")
    return lines


def dependent(rows: Sequence[Comparison]) -> list[str]:
    """That neighbouring launches are alike, where this would be chance in one table of twenty."""
    if not launches_dependent([comparison.serial for comparison in rows], MENTIONED):
        return []
    return ["launches depend on those before them (lag-1 autocorrelation): intervals are too narrow"]


def in_turns(rows: Sequence[Comparison]) -> list[str]:
    """How many launches were in turns, and what the turns themselves did to the differences."""
    seen = effects([comparison.pair for comparison in rows])
    if seen is None:
        return []
    what = f"duets in {counted(seen.launches, 'launch', 'launches')}: both worlds alive, measured alternately in slices"
    lines = [what if seen.start is None else f"{what}; {_of_start(seen.start)}"]
    if seen.before is not None and seen.before.excludes(1.0):
        lines.append(f"after a slice of its own rather than the other's, the other side is {_slower(seen.before)}")
    if seen.age is not None and seen.age.excludes(1.0):
        lines.append(f"in the second half of slices the other side is {_slower(seen.age)} than in the first")
    return lines


def _of_start(factor: Estimate) -> str:
    """Of the side that was started first: `no effect of the start order is seen (-2.0 .. +1.0 %)`."""
    if factor.excludes(1.0):
        return f"the side that was started first is {_slower(factor)}"
    low, high = ((end - 1) * 100 for end in factor.interval or (1.0, 1.0))
    return f"no effect of the start order is seen ({low:+.1f} .. {high:+.1f} %)"


def _slower(factor: Estimate) -> str:
    """`0.3 % slower (-0.2 .. +0.8)`, as faster where it is."""
    percent = (factor.value - 1) * 100
    low, high = ((end - 1) * 100 for end in factor.interval or (factor.value, factor.value))
    return f"{abs(percent):.1f} % {'slower' if percent >= 0 else 'faster'} ({low:+.1f} .. {high:+.1f})"


NOT_INTERLEAVED = (
    "the sides were not measured alternately: drift between them counts as a difference, or hides one "
    "(collbench launch alternates; --in-blocks declares that launches of equal number did)"
)


def what_differs(rows: Sequence[Comparison]) -> list[str]:
    """What else differs between the sides: facts of the environment, transports."""
    pairs = [comparison.pair for comparison in rows]
    lines = [f"{pair.base_name} against {pair.other_name}: {text}" for pair in pairs for text in pair.asked]
    lines += [f"also differs: {text}" for pair in pairs for text in pair.remarks]
    for pair in pairs:
        if pair.base.transports != pair.other.transports:
            base, other = _transport(pair.base, pair.base_name), _transport(pair.other, pair.other_name)
            lines.append(f"transport: {base}; {other}")
    return list(dict.fromkeys(lines))


def _transport(cell: Cell, name: str) -> str:
    """`mpich single strict CMA`: image, name of the side and place, each once, and how the bytes travelled."""
    where = cell.case.where
    words = dict.fromkeys(word for word in (where.image, name, where.text) if word)
    return f"{' '.join(words)} {', '.join(sorted(cell.transports)) or 'unknown'}"


def document(comparisons: Sequence[Comparison], margin: float, doubts: Sequence[str] = ()) -> dict[str, Any]:
    """All comparisons for programs: seconds and ratios, intervals as pairs, null where there is none.

    `notes` are the remarks below the tables, `doubts` the records that do not agree with their samples files.
    """
    notes = dict.fromkeys(note for table in tables(comparisons) for note in table.notes)
    entries = [entry(comparison) for comparison in comparisons]
    return {"margin": margin, "comparisons": entries, "notes": list(notes), "doubts": list(doubts)}


def entry(comparison: Comparison) -> dict[str, Any]:
    """One comparison, as `document` has it."""
    from msgspec import to_builtins

    pair, ratio, slow = comparison.pair, comparison.ratio, comparison.slow
    return {
        "base": {"name": pair.base_name, "case": to_builtins(pair.base.case), **_numbers(comparison.base),
                 "cpu": cpu_document(comparison.cpu[0])},
        "other": {"name": pair.other_name, "case": to_builtins(pair.other.case), **_numbers(comparison.other),
                  "cpu": cpu_document(comparison.cpu[1])},
        "ratio": None if ratio is None else _numbers(ratio), "blocks": comparison.blocks,
        "sizes": comparison.sizes,
        "paper_diff_percent": comparison.paper_diff, "launches": comparison.launches,
        "left_out": comparison.left_out, "contended": comparison.contended,
        "results_differ": remarks.document(comparison),
        "slow": None if slow is None else {"launches": [slow.base, slow.other], "means": slow.means},
        "verdict": comparison.verdict, "why": whole_reason(comparison), "launches_more": comparison.launches_more,
    }  # fmt: skip


def _numbers(estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {"value": None, "interval": None, "launches": 0}
    return {"value": estimate.value, "interval": estimate.interval, "launches": estimate.n}
