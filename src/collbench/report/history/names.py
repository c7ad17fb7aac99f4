"""What cells of a history are called: what tells them apart, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collbench.analysis.history.series import Series
from collbench.report.headings import heading
from collbench.schema.case import Case
from collbench.units import format_size


@dataclass(frozen=True)
class Name:
    """`allreduce sum float32`, `mpich single strict`, `64K`, `EPYC 7003, 4 cores`; empty where all cells share it."""

    what: str
    place: str
    size: str
    machine: str

    @property
    def without_size(self) -> str:
        return ", ".join(filter(None, (self.what, self.place, self.machine)))

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.what, self.place, self.size, self.machine))) or "the cell"


class Names:
    """The names of all series of a history. `shared` is what all of them have in common."""

    def __init__(self, all_series: Sequence[Series]) -> None:
        parts = [heading(one.case).split(", ") for one in all_series]
        common = [part for part in parts[0] if all(part in own for own in parts)] if parts else []
        first = parts[0][0] if parts else ""
        dropped = [part for part in common if part != first]  # the operation is always named
        places = {_place(one.case) for one in all_series}
        machines = {one.machine for one in all_series}
        self.shared = ", ".join(dropped)
        self._names = {
            id(one): Name(
                ", ".join(part for part in own if part not in dropped), _place(one.case) if len(places) > 1 else "",
                format_size(one.case["size"]) if "size" in one.case.what else "",
                one.machine if len(machines) > 1 else "",
            )
            for one, own in zip(all_series, parts, strict=True)
        }  # fmt: skip
        self._sizes: dict[str, set[int]] = {}
        for one in all_series:
            self._sizes.setdefault(self[one].without_size, set()).add(one.case["size"] or 0)

    def __getitem__(self, series: Series) -> Name:
        return self._names[id(series)]

    def together(self, several: Iterable[Series]) -> str:
        """`allreduce 64K..1M (host, multi strict) and bcast 8`: neighbouring sizes as a range, equal places once."""
        by_place: dict[tuple[str, str], list[Series]] = {}
        for one in several:
            name = self[one]
            by_place.setdefault((name.what, ", ".join(filter(None, (name.place, name.machine)))), []).append(one)
        places: dict[str, list[str]] = {}
        for (what, place), members in by_place.items():
            places.setdefault(f"{what} {self._ranges(members)}".strip(), []).append(place)
        return _and([f"{what} ({', '.join(where)})" if any(where) else what for what, where in places.items()])

    def _ranges(self, members: list[Series]) -> str:
        if not self[members[0]].size:
            return ""
        order = sorted(self._sizes[self[members[0]].without_size])
        wanted = sorted({order.index(one.case["size"]) for one in members})
        if len(wanted) == len(order) > 2:
            return "all sizes"
        ranges: list[list[int]] = []
        for index in wanted:
            if ranges and ranges[-1][-1] == index - 1:
                ranges[-1].append(index)
            else:
                ranges.append([index])
        return ", ".join(_range([format_size(order[index]) for index in one]) for one in ranges)


def _range(sizes: list[str]) -> str:
    return ", ".join(sizes) if len(sizes) < 3 else f"{sizes[0]}..{sizes[-1]}"


#: More are counted.
_MOST = 3


def _and(words: list[str]) -> str:
    more = len(words) - _MOST
    if more > 0:
        return f"{', '.join(words[:_MOST])} and {more} more"
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _place(case: Case) -> str:
    return f"{case.where.image or ''} {case.where.text}".strip()
