"""A run in the terms of papers on single machines: programs on the host against the same in one kind of container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from collbench.analysis import beneath
from collbench.analysis.compare import Comparison, compare
from collbench.analysis.factors import FACTORS
from collbench.analysis.observations import Cell, Observed
from collbench.analysis.pair import Pair
from collbench.analysis.pairs import within
from collbench.errors import RequestError
from collbench.schema.axes import STORAGES, step_order
from collbench.schema.case import Where
from collbench.schema.policy import policy_order


@dataclass(frozen=True)
class Sides:
    """Comparisons of the host with containers of one policy and step, and with files on one storage (None: no files).

    `far` compares these containers with the same ones far from their memory or GPU. `refused` says of programs why
    their sides are not compared. `in_turns`: the sides were measured in turns.
    """

    place: str
    storage: str | None
    comparisons: tuple[Comparison, ...]
    refused: Mapping[str, str]
    in_turns: bool
    far: tuple[Comparison, ...] = ()

    @property
    def title(self) -> str:
        """`multi strict, files on overlay`."""
        files = "" if self.storage is None else f"files on {self.storage}"
        return ", ".join(word for word in (self.place, files) if word)


def sides(observed: Observed, workloads: Iterable[str]) -> list[Sides]:
    """What a run has of these programs: the most isolated containers first, there the writable layer first.

    Programs that need no files are compared beside the first storage only. One entry without comparisons where the
    software of all sides differs; none where nothing was measured on both sides.

    Raises:
        RequestError: SciPy is not installed.
    """
    refused: dict[str, str] = {}
    pairs = _pairs(observed, workloads, refused)
    by_place: dict[Where, list[Comparison]] = {}
    for comparison in compare([pair for pair in pairs if pair.base.case.where.on_host], in_blocks=observed.interleaved):
        where = _place(comparison.pair.other.case.where)
        by_place.setdefault(where, []).append(comparison)
    far = _far(observed, workloads)
    found = [
        Sides(place.text, storage, tuple(of_storage), refused, observed.interleaved, tuple(far.get(place, ())))
        for place in sorted(by_place, key=_order)
        for storage, of_storage in _by_storage(by_place[place])
    ]
    return found or ([Sides("", None, (), refused, observed.interleaved)] if refused else [])


def _pairs(observed: Observed, workloads: Iterable[str], refused: dict[str, str]) -> list[Pair]:
    """Those of host and containers; `refused` is told of programs whose sides differ in more than the place."""
    pairs: list[Pair] = []
    for workload in workloads:
        cells = {case: cell for case, cell in observed.cells.items() if case.workload == workload}
        if {case.where.on_host for case in cells} != {True, False}:
            continue
        try:
            pairs += within(replace(observed, cells=cells), FACTORS["policy"], frozenset({beneath.NAME}))
        except RequestError as error:
            refused[workload] = _differences(error)
    return pairs


def _far(observed: Observed, workloads: Iterable[str]) -> dict[Where, list[Comparison]]:
    """What runs near its memory or GPU against the same far from it, by the place of what is near."""
    wanted = set(workloads)
    cells = {case: cell for case, cell in observed.cells.items() if case.workload in wanted}
    if {case.where.affinity for case in cells} != {"near", "far"}:
        return {}
    try:
        pairs = within(replace(observed, cells=cells), FACTORS["affinity"], frozenset({beneath.NAME}), ("near", "far"))
    except RequestError:  # no program of which there are both
        return {}
    found: dict[Where, list[Comparison]] = {}
    for comparison in compare(pairs, in_blocks=observed.interleaved):
        found.setdefault(_place(comparison.pair.base.case.where), []).append(comparison)
    return found


def _place(where: Where) -> Where:
    """The place alone: programs of one paper may need several images."""
    return Where(engine=where.engine, policy=where.policy, isolation=where.isolation, affinity=where.affinity,
                 seccomp=where.seccomp)  # fmt: skip


def _order(where: Where) -> tuple[object, ...]:
    return (where.affinity != "near", where.seccomp != "default", -step_order(where.isolation),
            policy_order(where.policy), where.engine)  # fmt: skip


def _by_storage(comparisons: Sequence[Comparison]) -> Iterable[tuple[str | None, list[Comparison]]]:
    """By storage, in the order of the axis; what needs no files belongs to the first."""
    storages = {comparison.pair.other.case.where.storage for comparison in comparisons}
    known = sorted((one for one in storages if one is not None), key=_storage_order)
    for number, storage in enumerate(known or [None]):
        wanted = {storage, None} if number == 0 else {storage}
        yield storage, [one for one in comparisons if one.pair.other.case.where.storage in wanted]


def _storage_order(storage: str) -> tuple[int, str]:
    return (STORAGES.index(storage) if storage in STORAGES else len(STORAGES), storage)


def _differences(error: RequestError) -> str:
    """The lines of a refusal that say what differs; all of it where it has none."""
    lines = str(error).splitlines()
    differing = [line.strip() for line in lines if line.startswith("  ")]
    return f"the sides differ in {'; '.join(differing)}" if differing else " ".join(lines)


def other_device(pair: Pair) -> str:
    """Why two sides with files cannot be compared: not the same device under them; empty where it is, or no files."""
    if pair.base.case.where.storage is None:
        return ""
    base, other = _devices(pair.base), _devices(pair.other)
    if len(base) == 1 and base == other and all("(" in device or device == "tmpfs" for device in base):
        return ""
    return f"not known to be one device: {_named(base)} on the host, {_named(other)} in containers"


def _devices(cell: Cell) -> set[str]:
    """`ext4 (vda)` of `overlay on ext4 (vda)`: what the files really lie on. All of it where two are named."""
    return {text if ";" in text else text.rpartition(" on ")[2] for text in cell.transports}


def _named(devices: set[str]) -> str:
    return " and ".join(sorted(devices)) or "unknown"
