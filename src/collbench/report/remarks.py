"""What a reader of records must know besides the numbers. A rank imports this, and nothing of the analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import median

from collbench.report.headings import differing, is_program, reductions, row_words, size_text
from collbench.schema.record import Record
from collbench.units import counted, format_size

OVERSUBSCRIBED = "more ranks than cores: these times are the scheduler's, not the library's"
SHARED_GPU = "ranks share a GPU (--share-gpu): a functional test, whose times mean nothing"

#: Hosts of slowest ranks that are named.
MOST_HOSTS = 3


def remarks(rows: Sequence[Record]) -> list[str]:
    """Skips and failures with their reasons, then `of_records`; one line each."""
    lines = []
    lost = [record for record in rows if record.status != "ok"]
    for (status, reason), group in groupby(lost, key=lambda record: (record.status, record.reason)):
        words = [words for record in group if (words := _row(record, rows))]
        span = " .. ".join(dict.fromkeys((words[0], words[-1]))) if words else ""
        lines.append(f"! {status}{' at ' if span else ''}{span}: {reason}")
    return lines + [f"* {line}" for line in of_records(rows)]


def _row(record: Record, rows: Sequence[Record]) -> str:
    """What tells its row from the others, whatever its measure: a size; of a program what its parameters are."""
    if not is_program(record.case):
        return size_text(record.case)
    return row_words(record.case, [name for name in differing([row.case for row in rows]) if name != "measure"])


def of_records(rows: Sequence[Record]) -> list[str]:
    """What limits the meaning of the numbers; one line each."""
    measured = [record for record in rows if record.seconds is not None]
    lines = list(dict.fromkeys(note for record in measured for note in record.notes)) + _of_clocks(measured)
    lines += reductions((record.case, record.messages) for record in measured)
    lines += [OVERSUBSCRIBED] * any(record.oversubscribed for record in measured)
    lines += [SHARED_GPU] * any(record.shared_gpu for record in measured)
    lines += _of_gpus(measured) + slowest_hosts([slowest for record in measured if (slowest := slowest_of(record))])
    works = [(record.work, record.case) for record in measured if record.work is not None]
    empty = len({case["size"] for work, case in works if work.amount == 0 < case["size"] and case["dtype"]})
    lines += [f"{empty} of the sizes asked for hold less than one element a block and round to 0 bytes: empty "
              "calls"] * (empty > 0)  # fmt: skip
    if contended := [record for record in measured if record.contended]:
        lines.append(f"tasks waited for a CPU while these were measured: {_named(contended, measured, rows)}")
    return lines


def _named(some: Sequence[Record], of: Sequence[Record], rows: Sequence[Record]) -> str:
    """By sizes, called `sizes asked for` where rows show the bytes that move; programs by their parameters."""
    if is_program(rows[0].case):
        return "all" if len(some) == len(of) else "; ".join(dict.fromkeys(_row(record, rows) for record in some))
    if len(some) == len(of):
        return "all sizes"
    rounded = any(record.work is not None and record.work.amount != record.case["size"] for record in some)
    listed = ", ".join(dict.fromkeys(format_size(record.case["size"]) for record in some))
    return listed + " (sizes asked for)" * rounded


def _of_clocks(measured: Sequence[Record]) -> list[str]:
    errors = [record.clock_error for record in measured if record.clock_error is not None]
    if not errors:
        return []
    seen, bound = (f"{max(getattr(error, name) for error in errors) * 1e6:.2g} us" for name in ("seen", "bound"))
    return [f"clocks of {max(e.hosts for e in errors)} hosts agree within {seen} as seen, {bound} guaranteed"]


def slowest_of(record: Record) -> tuple[str, float, str] | None:
    """Of more than 64 ranks: the slowest's host; how many times the usual machine median the largest is; its machine.

    The usual is the median of all machines' medians. None of fewer ranks.
    """
    ranks = record.ranks
    if ranks is None or not ranks.slowest or not ranks.machines:
        return None
    usual = median(machine.p50[2] for machine in ranks.machines)
    slowest = max(ranks.machines, key=lambda machine: machine.p50[2])
    return ranks.slowest[0].host, slowest.p50[2] / usual if usual else 1.0, slowest.name


def slowest_hosts(measured: Sequence[tuple[str, float, str]]) -> list[str]:
    """One line on measurements as `slowest_of` returns them; none where there are none."""
    if not measured:
        return []
    hosts = Counter(host for host, *_ in measured).most_common(MOST_HOSTS)
    _, ratio, machine = max(measured, key=lambda entry: entry[1])
    named = ", ".join(f"{host} in {number}" for host, number in hosts)
    return [f"slowest rank of {counted(len(measured), 'measurement')}: on {named}; {machine} took up to {ratio:.2f} "
            "times the median machine"]  # fmt: skip


def _of_gpus(measured: Sequence[Record]) -> list[str]:
    with_gpus = [record for record in measured if record.ranks is not None and record.ranks.on_gpus]
    ways = dict.fromkeys(record.transport for record in with_gpus if record.transport)
    slowed: dict[str, dict[str, None]] = {}
    for reading in (reading for record in measured for gpu in record.gpus for reading in (gpu.before, gpu.after)):
        slowed.setdefault(reading.uuid, {}).update(dict.fromkeys(reading.throttled or ()))
    lines = [f"connections between GPUs: {'; '.join(ways)}"] * bool(ways)
    return lines + [f"{uuid} was throttled: {', '.join(reasons)}" for uuid, reasons in slowed.items() if reasons]
