"""A run of many launches in one table: per case and place the median of launch medians, and what it is over the host's.

The ratio is the median of the blocks' ratios with its interval (`analysis.ratio`): a description, not yet a verdict.
"""

from __future__ import annotations

from itertools import groupby
from statistics import median

import msgspec

from collbench.analysis.ratio import FEWEST, Ratio, ratio
from collbench.report.remarks import cautions
from collbench.report.style import format_us
from collbench.schema.case import Case
from collbench.schema.record import Record
from collbench.units import format_size

_HEADERS = ("image", "policy", "isolation", "size\n(B)", "launches", "failed", "median\n(us)",
            "launches: min .. max\n(us)", "over the host\n(95 % interval)", "transport")  # fmt: skip


def summary(records: list[Record]) -> str:
    """Tables by collective, dtype, driver and ranks; in each the sizes in order, the host first."""
    text = ""
    ordered = sorted(records, key=lambda record: (_key(record.case), record.case.bytes))
    for _, group in groupby(ordered, key=lambda record: _key(record.case)):
        rows = list(group)
        text += f"{_heading(rows)}\n{_table(rows)}\n"
        text += "".join(f"* {line}\n" for line in _remarks(rows)) + "\n"
    return text


def _key(case: Case) -> tuple[str, ...]:
    """What the rows of a table have in common: by the driver asked for, which failures and skips have too."""
    facts = (case.collective, case.op, case.dtype if case.bytes else "", case.root, case.in_place, case.backend,
             case.driver, case.thread_level, f"{case.ranks:6d}")  # fmt: skip
    return tuple(str(fact) for fact in facts)


def _heading(records: list[Record]) -> str:
    case = records[0].case
    words = (case.collective, case.op, case.dtype if case.bytes else None,
             None if case.root is None else f"root {case.root}", "in place" if case.in_place else None)  # fmt: skip
    what = " ".join(word for word in words if word)
    ranks = "1 rank" if case.ranks == 1 else f"{case.ranks} ranks"
    drivers = "/".join(sorted({record.driver or case.driver for record in records if record.status == "ok"}))
    driver = drivers or case.driver
    return f"{what}, backend {case.backend}, driver {driver}, thread level {case.thread_level}, {ranks}"


def _remarks(records: list[Record]) -> list[str]:
    """What a reader of the table must know, each with the places that it is true of; and why what failed did."""
    found: dict[str, set[str]] = {}
    for record in records:
        calm = msgspec.structs.replace(record, contended=None)
        for line in cautions([calm]) if record.status == "ok" else [f"{record.status}: {record.reason}"]:
            found.setdefault(line, set()).add(_named(record.case))
    lines = [f"{line} ({', '.join(sorted(places))})" for line, places in found.items()]
    waited = sum(bool(record.contended) for record in records)
    if waited:
        lines.append(f"tasks waited for a CPU during {waited} of {len(records)} measurements")
    hosts = {place: len(_of(records, place)) for place in {_place(record.case) for record in records}}
    if any(place[1].startswith("host") for place in hosts):
        few = [place for place, launches in hosts.items() if launches < FEWEST * len({r.case.bytes for r in records})]
        hint = f"; it takes {FEWEST} blocks to have an interval" if few else ""
        lines.append(f"over the host: the median of the ratios within each block of launches{hint}")
    return lines


def _named(case: Case) -> str:
    return " ".join(word for word in (case.image, case.policy, case.isolation) if word)


def _table(records: list[Record]) -> str:
    from tabulate import tabulate

    rows = []
    for size, same in groupby(records, key=lambda record: record.case.bytes):
        sized = list(same)
        places = dict.fromkeys(_place(record.case) for record in sorted(sized, key=lambda r: _rank(r.case)))
        for image, policy, step in places:
            _, _, affinity = policy.partition("/")
            host = _of(sized, (image, f"host/{affinity}" if affinity else "host", None))
            rows.append(_row(size, [r for r in sized if _place(r.case) == (image, policy, step)], host))
    text: str = tabulate(rows, headers=_HEADERS, tablefmt="simple", disable_numparse=True)
    return text


#: Image, policy (with `/far` where memory is far), step.
Place = tuple[str | None, str, str | None]


def _place(case: Case) -> Place:
    return (case.image, case.policy, case.isolation)


def _of(records: list[Record], place: Place) -> list[Record]:
    """What was measured at a place."""
    return [record for record in records if _place(record.case) == place and record.seconds is not None]


def _rank(case: Case) -> tuple[str, str, int, str, int]:
    """Image by image, near before far: from the host through one container to the most isolated."""
    steps = (None, "visible", "net", "ipc", "limits", "strict")
    policies = ("host", "multi")
    policy, _, affinity = case.policy.partition("/")
    kind = policies.index(policy) if policy in policies else len(policies)
    step = steps.index(case.isolation) if case.isolation in steps else 0
    return (case.image or "", affinity, kind, policy, step)


def _medians(records: list[Record]) -> list[float]:
    return [record.seconds.p50 for record in records if record.seconds is not None]


def _row(size: int, records: list[Record], host: list[Record]) -> tuple[str, ...]:
    case, found = records[0].case, _medians(records)
    failed = sum(record.status == "failed" for record in records)
    transports = ", ".join(sorted({record.transport for record in records if record.transport}))
    start = (case.image or "", case.policy, case.isolation or "", format_size(size), str(len(found)), str(failed))
    if not found:
        return (*start, "", "", "", transports)
    over = "" if case.policy.startswith("host") else _over(ratio(records, host))
    return (*start, format_us(median(found)), f"{format_us(min(found))} .. {format_us(max(found))}", over, transports)


def _over(found: Ratio | None) -> str:
    """`1.72 (1.65 .. 1.80)`; without interval where the launches are too few."""
    if found is None:
        return ""
    interval = "" if found.interval is None else f" ({found.interval[0]:.2f} .. {found.interval[1]:.2f})"
    return f"{found.value:.2f}{interval}"
