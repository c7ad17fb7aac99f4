"""A run of many launches in one table: per case and place the median of launch medians, and what it is over the host's.

Ratios are descriptions here, not verdicts: they carry the range over launches and no interval.
"""

from __future__ import annotations

from itertools import groupby
from statistics import median

from collbench.report.style import format_us
from collbench.schema.case import Case
from collbench.schema.record import Record
from collbench.units import format_size

_HEADERS = ("image", "policy", "isolation", "size\n(B)", "launches", "failed", "median\n(us)",
            "launches: min .. max\n(us)", "over\nhost", "transport")  # fmt: skip

#: What a case is, whatever the place.
Key = tuple[object, ...]


def summary(records: list[Record]) -> str:
    """Tables by collective, dtype, driver and ranks; in each the sizes in order, the host first."""
    text = ""
    ordered = sorted(records, key=lambda record: (_heading(record.case), record.case.bytes))
    for heading, group in groupby(ordered, key=lambda record: _heading(record.case)):
        text += f"{heading}\n{_table(list(group))}\n\n"
    return text


def _heading(case: Case) -> str:
    words = (case.collective, case.op, case.dtype if case.bytes else None,
             None if case.root is None else f"root {case.root}", "in place" if case.in_place else None)  # fmt: skip
    what = " ".join(word for word in words if word)
    ranks = "1 rank" if case.ranks == 1 else f"{case.ranks} ranks"
    return f"{what}, backend {case.backend}, driver {case.driver}, thread level {case.thread_level}, {ranks}"


def _table(records: list[Record]) -> str:
    from tabulate import tabulate

    rows = []
    for size, same in groupby(records, key=lambda record: record.case.bytes):
        sized = list(same)
        hosts = {image: _middle([r for r in sized if r.case.image == image and r.case.policy == "host"])
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


def _middle(records: list[Record]) -> float | None:
    return median(_medians(records)) if _medians(records) else None


def _row(size: int, records: list[Record], host: float | None) -> tuple[str, ...]:
    case, found = records[0].case, _medians(records)
    failed = sum(record.status == "failed" for record in records)
    transports = ", ".join(sorted({record.transport for record in records if record.transport}))
    start = (case.image or "", case.policy, case.isolation or "", format_size(size), str(len(found)), str(failed))
    if not found:
        return (*start, "", "", "", transports)
    ratio = "" if host is None else f"{median(found) / host:.2f}"
    return (*start, format_us(median(found)), f"{format_us(min(found))} .. {format_us(max(found))}", ratio, transports)
