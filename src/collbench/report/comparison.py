"""Comparisons as tables and as JSON: a table for each question, rows by size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import FEWEST, Estimate
from collbench.analysis.ordering import place, place_order
from collbench.report.cells import cautions, heading_of
from collbench.report.headings import heading_key
from collbench.report.rates import rate_heading, rate_text
from collbench.report.style import format_us
from collbench.report.tables import Table
from collbench.schema.case import Case
from collbench.schema.record import Work
from collbench.units import format_size

COLUMNS = ("image", "sides", "size (B)", "launches", "base (us)", "base 95 %", "base rate", "other (us)",
           "other 95 %", "other rate", "difference (%)", "difference 95 %", "p", "p in blocks", "p adjusted",
           "paper's Diff%", "verdict")  # fmt: skip


def tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """A table for each collective, dtype, driver and number of ranks."""
    ordered = sorted(comparisons, key=_order)
    found = []
    for _, group in groupby(ordered, key=lambda one: heading_key(one.pair.base.case)):
        rows = list(group)
        cells = [cell for one in rows for cell in (one.pair.base, one.pair.other)]
        unique = list({id(cell): cell for cell in cells}.values())
        columns, cut = _without_empty(COLUMNS, tuple(_row(one) for one in rows))
        notes = (*_explained(rows), *of_launches(rows), *_differ(rows), *cautions(unique))
        found.append(Table(heading_of(unique), columns, cut, notes))
    return found


def _order(one: Comparison) -> tuple[object, ...]:
    base, other = one.pair.base.case, one.pair.other.case
    return (
        heading_key(base),
        base.where.image or "",
        place_order(base),
        place_order(other),
        one.pair.other_name,
        base["size"],
    )


def _without_empty(
    columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Without the columns in which no row says anything."""
    kept = [index for index, _ in enumerate(columns) if any(row[index] for row in rows)]
    return tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows)


def _row(one: Comparison) -> tuple[str, ...]:
    case = one.pair.base.case
    image = case.where.image if case.where.image == one.pair.other.case.where.image else None
    where = place(case)
    here = f" ({where})" if where == place(one.pair.other.case) and where != "host" else ""
    return (
        image or "", f"{one.pair.base_name} > {one.pair.other_name}{here}", format_size(case["size"]),
        _launches(one), *_side(one.base), _rate(one.base, one.pair.base.work), *_side(one.other),
        _rate(one.other, one.pair.other.work), *_difference(one),
        *("" if p is None else f"{p:.2g}" for p in (one.p, one.p_blocks, one.p_adjusted)),
        "" if one.paper_diff is None else f"{one.paper_diff:.1f}", verdict(one),
    )  # fmt: skip


def verdict(one: Comparison) -> str:
    """The verdict, and what it lacks or why there is none; or what a median hides."""
    if one.verdict in ("inconclusive", "not comparable"):
        return f"{one.verdict} ({one.why})"
    return one.verdict if one.slow is None else f"{one.verdict} ({one.slow.text})"


def _launches(one: Comparison) -> str:
    """How many of each side count, and of how many: in blocks, those that both sides have."""
    counted = _both(*one.launches)
    measured = _both(len(one.pair.base.medians), len(one.pair.other.medians))
    return counted if counted == measured else f"{counted} of {measured}"


def _both(base: int, other: int) -> str:
    return str(base) if base == other else f"{base} and {other}"


def _side(found: Estimate | None) -> tuple[str, str]:
    if found is None:
        return "", ""
    between = "" if found.interval is None else " .. ".join(map(format_us, found.interval))
    return format_us(found.value), between


def _rate(found: Estimate | None, work: Work) -> str:
    """`12.3 GB/s` of what people know as a rate; empty for the rest."""
    return "" if found is None or work.shown != "rate" else f"{rate_text(work, found.value)} {rate_heading(work)}"


def _difference(one: Comparison) -> tuple[str, str]:
    if one.ratio is None or one.percent is None:
        return "", ""
    ends = None if one.ratio.interval is None else tuple((end - 1) * 100 for end in one.ratio.interval)
    return f"{one.percent:+.1f}", "" if ends is None else f"{ends[0]:+.1f} .. {ends[1]:+.1f}"


def _explained(rows: Sequence[Comparison]) -> list[str]:
    blocks = rows[0].blocks
    how = ("the median of the ratios within blocks of launches" if blocks
           else "the median of all ratios between launches of the two sides, which were not interleaved")  # fmt: skip
    counted = Counter(one.verdict for one in rows)
    said = ", ".join(f"{number} {name}" for name, number in counted.most_common())
    family = max(one.cells for one in rows)
    adjusted = [f"p adjusted: over the {family} cells that were compared together"] if family > 1 else []
    return [f"difference: {how}; positive: the other side is slower", f"verdicts: {said}", *adjusted]


def of_launches(rows: Sequence[Comparison]) -> list[str]:
    """What the launches of these cells show that their verdicts rest on: order, memory, ways, kinds."""
    lines = []
    if any(one.launches_more is not None and one.launches[0] >= FEWEST for one in rows):
        lines.append("needs about k more launches (4 in 5): with so many there is a verdict in four cases of five")
    if not rows[0].blocks:
        lines.append(NOT_INTERLEAVED)
    scores = [one.serial for one in rows if one.serial is not None]
    if scores and sum(scores) / len(scores) > SERIAL:
        lines.append(
            "launches depend on those before them (lag-1 autocorrelation): intervals are too narrow, p too small"
        )
    left_out = sum(one.left_out for one in rows)
    if left_out:
        lines.append(f"launches left out, because they were measured in another way than their partners: {left_out}")
    if any(one.slow is not None for one in rows):
        lines.append("slower by a quarter: than the median of the cell; a median does not show that some launches are")
    return lines


#: What everybody must know who compares what was not measured in turns.
NOT_INTERLEAVED = (
    "measured one after the other, not in turns: what drifted between the sides counts as a difference, or hides one "
    "(collbench launch measures in turns; --in-blocks says that launches of equal number were)"
)

#: The mean normal score of autocorrelations above which launches are called dependent: 5 % on one side.
SERIAL = 1.645


def _differ(rows: Sequence[Comparison]) -> list[str]:
    """What else differs between the sides, and where they took another way."""
    lines = list(dict.fromkeys(f"differs besides: {text}" for one in rows for text in one.pair.remarks))
    ways: dict[str, None] = {}
    for one in rows:
        mine, theirs = (", ".join(sorted(cell.transports)) for cell in (one.pair.base, one.pair.other))
        if mine != theirs:
            ways[f"transport: {_named(one.pair.base.case, one.pair.base_name)} {mine or 'unknown'}; "
                 f"{_named(one.pair.other.case, one.pair.other_name)} {theirs or 'unknown'}"] = None  # fmt: skip
    return lines + list(ways)


def _named(case: Case, name: str) -> str:
    """A side by its image, its name and its place, each once."""
    return " ".join(dict.fromkeys(word for word in (case.where.image, name, place(case)) if word))


def document(comparisons: Sequence[Comparison], margin: float, doubts: Sequence[str] = ()) -> dict[str, Any]:
    """All that was found, for programs: seconds and ratios, intervals as pairs, null where there is none.

    `notes` are the remarks below the tables, `doubts` which records their samples files do not bear out.
    """
    notes = dict.fromkeys(note for table in tables(comparisons) for note in table.notes)
    entries = [_entry(one) for one in comparisons]
    return {"margin": margin, "comparisons": entries, "notes": list(notes), "doubts": list(doubts)}


def _entry(one: Comparison) -> dict[str, Any]:
    from msgspec import to_builtins

    return {
        "base": {"name": one.pair.base_name, "case": to_builtins(one.pair.base.case), **_numbers(one.base)},
        "other": {"name": one.pair.other_name, "case": to_builtins(one.pair.other.case), **_numbers(one.other)},
        "ratio": None if one.ratio is None else _numbers(one.ratio), "blocks": one.blocks,
        "p": one.p, "p_blocks": one.p_blocks, "p_adjusted": one.p_adjusted, "cells": one.cells,
        "paper_diff_percent": one.paper_diff, "launches": one.launches, "left_out": one.left_out,
        "slow": None if one.slow is None else [one.slow.base, one.slow.other],
        "verdict": one.verdict, "why": one.why, "launches_more": one.launches_more,
    }  # fmt: skip


def _numbers(found: Estimate | None) -> dict[str, Any]:
    if found is None:
        return {"value": None, "interval": None, "launches": 0}
    return {"value": found.value, "interval": found.interval, "launches": found.n}
