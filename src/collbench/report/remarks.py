"""What a reader must know besides the numbers: skips, failures, and what disturbed the measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.analysis.launches import Unequal, unequal
from collbench.report.parameters import is_program, row_words, varying
from collbench.schema.record import Record
from collbench.units import counted, format_size

OVERSUBSCRIBED = "more ranks than cores: these times are the scheduler's, not the library's"
SHARED_GPU = "ranks share a GPU (--share-gpu): a functional test, whose times mean nothing"


#: Most hosts of slowest ranks that are named.
MOST_HOSTS = 3


def remarks(rows: list[Record]) -> list[str]:
    """Skips and failures with their reasons, then `cautions`; one line each."""
    lines = []
    for (status, reason), group in groupby(
        (record for record in rows if record.status != "ok"), key=lambda record: (record.status, record.reason)
    ):
        words = [words for record in group if (words := _row(record, rows))]
        span = " .. ".join(dict.fromkeys((words[0], words[-1]))) if words else ""
        lines.append(f"! {status}{' at ' if span else ''}{span}: {reason}")
    return lines + [f"* {line}" for line in cautions(rows)]


def _row(record: Record, rows: list[Record]) -> str:
    """What tells its row from the others, whatever its measure: a size; of a program what its parameters are."""
    if not is_program(record.case):
        return format_size(record.case["size"]) if "size" in record.case.what else ""
    names = varying([row.case for row in rows])
    return row_words(record.case, [name for name in names if name != "measure"])


def cautions(rows: list[Record]) -> list[str]:
    """What limits the meaning of the numbers; one line each."""
    measured = [record for record in rows if record.seconds is not None]
    lines = list(dict.fromkeys(note for record in measured for note in record.notes)) + _of_clocks(measured)
    if any(record.oversubscribed for record in measured):
        lines.append(OVERSUBSCRIBED)
    if any(record.shared_gpu for record in measured):
        lines.append(SHARED_GPU)
    lines += _of_gpus(measured) + slowest_hosts([one for record in measured if (one := slowest_of(record))])
    empty = len({r.case["size"] for r in measured if _is_empty(r)})
    if empty:
        lines.append(
            f"{empty} of the sizes asked for hold less than one element a block and round to 0 bytes: empty calls"
        )
    contended = [record for record in measured if record.contended]
    if contended:
        program, every = is_program(rows[0].case), len(contended) == len(measured)
        where = ("all" if program else "all sizes") if every else _sizes(contended, rows)
        lines.append(f"tasks waited for a CPU while these were measured: {where}")
    return lines


def _is_empty(record: Record) -> bool:
    """Whether a size of a collective was rounded to nothing."""
    return record.work is not None and record.work.amount == 0 < record.case["size"] and bool(record.case["dtype"])


def _sizes(rows: list[Record], of: list[Record]) -> str:
    """Sizes asked for, called so where the rows of the table show other sizes, the bytes that move.

    Rows of a program are named by their parameters, among all those `of` the table.
    """
    if is_program(rows[0].case):
        return "; ".join(dict.fromkeys(_row(record, of) for record in rows))
    rounded = any(record.work is not None and record.work.amount != record.case["size"] for record in rows)
    listed = ", ".join(dict.fromkeys(format_size(record.case["size"]) for record in rows))
    return f"{listed} (sizes asked for)" if rounded else listed


def _of_clocks(measured: list[Record]) -> list[str]:
    """How well the clocks of several hosts were synchronised, at worst."""
    errors = [record.clock_error for record in measured if record.clock_error is not None]
    if not errors:
        return []
    seen, bound = (f"{max(times) * 1e6:.2g} us" for times in ([e.seen for e in errors], [e.bound for e in errors]))
    return [f"clocks of {max(e.hosts for e in errors)} hosts agree within {seen} as seen, {bound} guaranteed"]


def slowest_of(record: Record) -> tuple[str, float, str] | None:
    """Of more than 64 ranks: the slowest's host; how many times the usual machine median the largest is; its machine.

    The usual is the median of all machines' medians. None of fewer ranks.
    """
    ranks = record.ranks
    if ranks is None or not ranks.slowest:
        return None
    usual = median(machine.p50[2] for machine in ranks.machines)
    slowest = max(ranks.machines, key=lambda machine: machine.p50[2])
    return ranks.slowest[0].host, slowest.p50[2] / usual if usual else 1.0, slowest.name


def slowest_hosts(measured: Sequence[tuple[str, float, str]]) -> list[str]:
    """One line on measurements as `slowest_of` returns them; none where there are none."""
    if not measured:
        return []
    hosts = Counter(host for host, *_ in measured).most_common(MOST_HOSTS)
    _, ratio, machine = max(measured, key=lambda one: one[1])
    named = ", ".join(f"{host} in {number}" for host, number in hosts)
    return [f"slowest rank of {counted(len(measured), 'measurement')}: on {named}; {machine} took up to {ratio:.2f} "
            "times the median machine"]  # fmt: skip


def _of_gpus(measured: list[Record]) -> list[str]:
    """How bytes travelled between GPUs, and which GPUs were throttled."""
    lines = []
    with_gpus = [record for record in measured if record.ranks is not None and record.ranks.on_gpus]
    ways = dict.fromkeys(record.transport for record in with_gpus if record.transport)
    if ways:
        lines.append(f"connections between GPUs: {'; '.join(ways)}")
    slowed: dict[str, list[str]] = {}
    for state in (state for record in measured for state in record.gpus):
        for reading in (state.before, state.after):
            slowed.setdefault(reading.uuid, []).extend(reading.throttled or ())
    throttled = {uuid: ", ".join(dict.fromkeys(reasons)) for uuid, reasons in slowed.items() if reasons}
    return lines + [f"{uuid} was throttled: {reasons}" for uuid, reasons in throttled.items()]


#: Of one side, more values are counted.
MOST = 3


def differing_results(rows: Sequence[Comparison]) -> list[str]:
    """`results differ, network lstm: loss 9.21034 (host), 9.21041 (multi strict); ...`, once for all measures."""
    cases = [comparison.pair.base.case for comparison in rows]
    names = [name for name in varying(cases) if name != "measure" and len({case[name] for case in cases}) > 1]
    found = [_said(comparison, one, names) for comparison in rows for one in unequal(comparison.pair)]
    return list(dict.fromkeys(found))


def findings(comparisons: Sequence[Comparison]) -> list[str]:
    """The same of several benchmarks, whose names come first."""
    workloads = dict.fromkeys(comparison.pair.base.case.workload for comparison in comparisons)
    by_name = {name: [one for one in comparisons if one.pair.base.case.workload == name] for name in workloads}
    return [f"{name}: {line}" for name, own in by_name.items() for line in differing_results(own)]


def _said(comparison: Comparison, one: Unequal, names: Sequence[str]) -> str:
    words = row_words(comparison.pair.base.case, names)
    sides = ((one.base, comparison.pair.base_name), (one.other, comparison.pair.other_name))
    values = ", ".join(f"{_listed(values)} ({name})" for values, name in sides if values)
    return (f"results differ{words and f', {words}'}: {one.name} {values}; the same software should give the same, so "
            "the sides do not compute alike")  # fmt: skip


def _listed(values: Sequence[float]) -> str:
    more = len(values) - MOST
    return " and ".join(f"{value:g}" for value in values[:MOST]) + (f" and {more} more" if more > 0 else "")


def document(comparison: Comparison) -> list[dict[str, Any]]:
    """For programs: the values of each side, of the figures that differ."""
    return [{"name": one.name, "base": one.base, "other": one.other} for one in unequal(comparison.pair)]
