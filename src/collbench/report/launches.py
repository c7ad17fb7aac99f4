"""A run of many launches in one table: per case and place the median of launch medians, and what it is over the host's.

The ratio is the median of the blocks' ratios with its interval (`analysis.ratio`): a description, not yet a verdict.
"""

from __future__ import annotations

from itertools import groupby
from statistics import median

from collbench.analysis.ratio import FEWEST, Ratio, ratio
from collbench.report.remarks import cautions
from collbench.report.style import format_us
from collbench.schema.case import Case
from collbench.schema.record import Record
from collbench.units import format_size

_HEADERS = ("image", "policy", "isolation", "size\n(B)", "launches", "failed", "median\n(us)",
            "launches: min .. max\n(us)", "over the host\n(95 % interval)", "transport")  # fmt: skip

#: What a case is, whatever the place.
Key = tuple[object, ...]


def summary(records: list[Record]) -> str:
    """Tables by collective, dtype, driver and ranks; in each the sizes in order, the host first."""
    text = ""
    ordered = sorted(records, key=lambda record: (_heading(record), record.case.bytes))
    for heading, group in groupby(ordered, key=_heading):
        rows = list(group)
        text += f"{heading}\n{_table(rows)}\n"
        text += "".join(f"* {line}\n" for line in _remarks(rows)) + "\n"
    return text


def _remarks(records: list[Record]) -> list[str]:
    """What a reader of the table must know, each with the places that it is true of; and why what failed did."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for line in cautions([record]) if record.status == "ok" else [f"{record.status}: {record.reason}"]:
            found.setdefault(line, {})[_named(record.case)] = None
    lines = [f"{line} ({', '.join(places)})" for line, places in found.items()]
    blocks = {record.launch for record in records}
    if any(record.case.policy == "host" for record in records):
        few = "" if len(blocks) >= FEWEST else f"; it takes {FEWEST} launches to have an interval"
        lines.append(f"over the host: the median of the ratios within each block of launches{few}")
    return lines


def _named(case: Case) -> str:
    return " ".join(word for word in (case.image, case.policy, case.isolation) if word)


def _heading(record: Record) -> str:
    case = record.case
    words = (case.collective, case.op, case.dtype if case.bytes else None,
             None if case.root is None else f"root {case.root}", "in place" if case.in_place else None)  # fmt: skip
    what = " ".join(word for word in words if word)
    ranks = "1 rank" if case.ranks == 1 else f"{case.ranks} ranks"
    driver = record.driver or case.driver
    return f"{what}, backend {case.backend}, driver {driver}, thread level {case.thread_level}, {ranks}"


def _table(records: list[Record]) -> str:
    from tabulate import tabulate

    rows = []
    for size, same in groupby(records, key=lambda record: record.case.bytes):
        sized = list(same)
        hosts = {image: [r for r in sized if r.case.image == image and r.case.policy == "host"]
                 for image in {record.case.image for record in sized}}  # fmt: skip
        places = dict.fromkeys(_place(record.case) for record in sorted(sized, key=lambda r: _rank(r.case)))
        rows += [_row(size, [r for r in sized if _place(r.case) == place], hosts[place[0]]) for place in places]
    text: str = tabulate(rows, headers=_HEADERS, tablefmt="simple", disable_numparse=True)
    return text


def _place(case: Case) -> tuple[str | None, str, str | None]:
    return (case.image, case.policy, case.isolation)


def _rank(case: Case) -> tuple[str, int, int]:
    """Image by image: from the host through one container to the most isolated."""
    steps = (None, "visible", "net", "ipc", "limits", "strict")
    policies = ("host", "multi")
    policy = policies.index(case.policy) if case.policy in policies else 2
    return (case.image or "", policy, steps.index(case.isolation) if case.isolation in steps else 0)


def _medians(records: list[Record]) -> list[float]:
    return [record.seconds.p50 for record in records if record.seconds is not None]


def _row(size: int, records: list[Record], host: list[Record]) -> tuple[str, ...]:
    case, found = records[0].case, _medians(records)
    failed = sum(record.status == "failed" for record in records)
    transports = ", ".join(sorted({record.transport for record in records if record.transport}))
    start = (case.image or "", case.policy, case.isolation or "", format_size(size), str(len(found)), str(failed))
    if not found:
        return (*start, "", "", "", transports)
    over = "" if case.policy == "host" else _over(ratio(records, host))
    return (*start, format_us(median(found)), f"{format_us(min(found))} .. {format_us(max(found))}", over, transports)


def _over(found: Ratio | None) -> str:
    """`1.72 (1.65 .. 1.80)`; without interval where the launches are too few."""
    if found is None:
        return ""
    interval = "" if found.interval is None else f" ({found.interval[0]:.2f} .. {found.interval[1]:.2f})"
    return f"{found.value:.2f}{interval}"
