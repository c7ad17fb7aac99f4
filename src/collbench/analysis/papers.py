"""What papers published, as data, and what runs and plans have of it: cells with the axes of papers, and comparisons.

A paper has figures with units, conclusions as tests of cells, and how its gaps are read. Of runs there are comparisons
of each kind of container with the host, and cells for claims that one library or placement is faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, Literal, NamedTuple

import msgspec

from collbench.analysis.factors import FACTORS, facts_of, software
from collbench.analysis.pairs import Pair, listed_facts, within
from collbench.analysis.results import Cell, grouped
from collbench.analysis.runs import Observed
from collbench.errors import RequestError, RunReadError
from collbench.schema.axes import AXES, STORAGES, policy_order, step_order
from collbench.schema.case import Case, Where
from collbench.units import counted

#: The least and the largest Diff% (%); None: no bound.
NumberRange = tuple[float | None, float | None]
Scalar = int | str | None
Needs = Literal["all", "most", "some"]

#: A name in `ClaimPart.grid` that begins so is an axis of the side that `than` selects.
THAN = "than."


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in a paper's file."""


class Selector(_Data, frozen=True, kw_only=True):
    """Cells of a run: those of a workload with one of these values, or patterns such as `gru_*`, on their axes.

    `shown` is what the paper prints, and so that of its Diff%. `figures` of the check are shown beside a cell.
    """

    workload: str
    values: dict[str, Scalar | tuple[Scalar, ...]] = {}
    shown: Literal["time", "rate"] = "time"
    figures: tuple[str, ...] = ()

    def takes(self, cell: Any) -> bool:
        """Of a case, or of what has the axes of one and more."""
        return matches(cell["workload"], self.workload) and all(
            any(matches(cell[name], choice) for choice in (value if isinstance(value, tuple) else (value,)))
            for name, value in self.values.items()
        )


def matches(value: Any, pattern: Scalar) -> bool:
    """Whether a value is the one that is wanted; of texts, fits its pattern."""
    texts = isinstance(value, str) and isinstance(pattern, str)
    return fnmatchcase(str(value), str(pattern)) if texts else bool(value == pattern)


#: By axis the values of a paper's cells, or how many there are where any will do.
Grid = dict[str, tuple[Scalar, ...] | int]


class _OnGrid(_Data, frozen=True, kw_only=True):
    """What is about some cells of a paper; `grid` spans them."""

    grid: Grid = {}

    @property
    def total(self) -> int:
        """How many cells the paper has."""
        return math.prod(size if isinstance(size, int) else len(size) for size in self.grid.values())

    def coordinates(self, of: Any, than: Any = None) -> tuple[Scalar, ...] | None:
        """The values on the axes of the grid; those of the side `than` on the axes that name it. None: not in it."""
        found: list[Scalar] = []
        for name, values in self.grid.items():
            value = than[name.removeprefix(THAN)] if than is not None and name.startswith(THAN) else of[name]
            fitting = [value] if isinstance(values, int) else [choice for choice in values if matches(value, choice)]
            found += fitting[:1]
        return tuple(found) if len(found) == len(self.grid) else None


class ClaimPart(_OnGrid, frozen=True, kw_only=True):
    """A statement on some cells of a paper: exactly one of `diff_percent`, `more_than` and `than` is the test.

    `grid` spans the paper's cells: by axis the values, or how many there are where any will do. What a run has beside
    the grid is no evidence. `needs`: all of these cells must pass, most of them, or some.

    Host and container are compared `by` policy, or containers near and far from their memory by affinity: their Diff%
    lies between the bounds of `diff_percent`, or further from 0 than that of each of `more_than`.

    Cells `of` are faster than those of `than` that are equal on the axes `at`, or are not if not `faster`. With
    `growth` the time of the first grows less than that of the others between these two numbers of workers. Cells with
    more ranks than cores are no evidence if not `crowded`.
    """

    of: Selector
    text: str = ""
    needs: Needs = "all"
    by: Literal["policy", "affinity"] = "policy"
    diff_percent: NumberRange | None = None
    more_than: tuple[Selector, ...] = ()
    than: Selector | None = None
    at: tuple[str, ...] = ()
    faster: bool = True
    growth: tuple[int, int] | None = None
    crowded: bool = True

    def __post_init__(self) -> None:
        if sum((self.diff_percent is not None, bool(self.more_than), self.than is not None)) != 1:
            raise ValueError(f"{self.of.workload}: exactly one of diff_percent, more_than, than")
        if self.growth is not None and not (self.faster and self.than is not None and "workers" in self.at):
            raise ValueError(f"{self.of.workload}: growth needs than, and workers among the axes at")

    @property
    def selectors(self) -> tuple[Selector, ...]:
        return (self.of, *self.more_than, *((self.than,) if self.than else ()))


class Conclusion(_Data, frozen=True, kw_only=True):
    """A sentence of a paper, in its words, which holds if all its parts do.

    Of a `chain`, such as "slower, because launches are", no verdict is possible without one of its parts. Cells
    `beside` are shown and decide nothing.
    """

    number: int
    text: str
    parts: tuple[ClaimPart, ...]
    chain: bool = False
    beside: tuple[Selector, ...] = ()


class Published(_Data, frozen=True, kw_only=True):
    """A published result on the host and in Docker; None where it is not given.

    `bound_percent` is the most that |Diff%| may be, `cell` what of a run stands beside it, or None.
    """

    experiment: str
    machine: str
    quantity: str
    unit: str | None
    docker: float | None
    host: float | None
    diff_percent: float | None
    bound_percent: float | None = None
    best: float | None = None
    deviation: float | None = None
    note: str = ""
    cell: Selector | None = None

    @property
    def diff(self) -> float | None:
        """Diff% as it is published, else of the published results; None where there is neither."""
        if self.diff_percent is not None or self.host is None or self.docker is None:
            return self.diff_percent
        return (self.host - self.docker) / self.host * 100


class PublishedTime(_Data, frozen=True, kw_only=True):
    """A published time (s) of a collective or a training; `cell` says of which library, place and number of workers."""

    seconds: float
    cell: Selector
    machine: str = ""
    note: str = ""


class Ratio(_Data, frozen=True, kw_only=True):
    """A published ratio of times, or of two published times of one machine: `of` over `over`."""

    text: str
    ratio: float
    of: Selector
    over: Selector
    reading: str = ""


class PaperPlan(_Data, frozen=True, kw_only=True):
    """A launch plan of a paper, and the one that takes its place where a machine lacks what it needs."""

    plan: str
    otherwise: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.plan, self.otherwise) if self.otherwise else (self.plan,)


class Exhibit(_OnGrid, frozen=True, kw_only=True):
    """A table or figure of a paper, and its cells: those `of` a selector, on a grid of so many."""

    name: str
    about: str
    of: tuple[Selector, ...]

    def cell(self, item: Item) -> tuple[Scalar, ...] | None:
        """Which of its cells this is; None: none, or it is on the host."""
        taken = not item.case.where.on_host and any(way.takes(item) for way in self.of)
        return self.coordinates(item) if taken else None


class Paper(_Data, frozen=True, kw_only=True):
    """A paper. `plans` measure it, in this order; `reading` are assumptions on what it does not say."""

    reference: str
    title: str
    authors: tuple[str, ...]
    source: str
    setup: dict[str, str]
    reading: tuple[str, ...]
    conclusions: tuple[Conclusion, ...]
    plans: tuple[PaperPlan, ...]
    exhibits: tuple[Exhibit, ...]
    figures: tuple[PublishedTime, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    experiments: tuple[Published, ...] = ()

    @property
    def parts(self) -> Iterator[ClaimPart]:
        return (part for conclusion in self.conclusions for part in conclusion.parts)

    @property
    def programs(self) -> tuple[str, ...]:
        """The workloads that are compared between host and container."""
        selectors = [selector for part in self.parts if part.than is None for selector in part.selectors]
        selectors += [selector for conclusion in self.conclusions for selector in conclusion.beside]
        selectors += [figure.cell for figure in self.experiments if figure.cell is not None]
        return tuple(dict.fromkeys(selector.workload for selector in selectors))


def decode(text: bytes) -> Paper:
    """A paper from its file; raises RunReadError where it is none."""
    try:
        return msgspec.json.decode(text, type=Paper)
    except msgspec.DecodeError as error:
        raise RunReadError(f"the paper's figures cannot be read: {error}") from error


@dataclass(frozen=True)
class Item:
    """A cell of a run or of a plan (without `cell`), with two axes more: the paper's `library`, and `workers`.

    `crowded`: there were more ranks than cores. `in_blocks`: launches of its run that have one number were paired.
    """

    case: Case
    library: str | None = None
    crowded: bool = False
    cell: Cell | None = None
    run: str = ""
    in_blocks: bool = True

    def __getitem__(self, axis: str) -> Any:
        if axis == "workers":
            return workers(self.case)
        return self.library if axis == "library" else self.case[axis]

    @property
    def name(self) -> str:
        """`single MPICH`; `multi strict, one process`; `single strict, 2 servers (even), 4 workers`."""
        case, servers = self.case, self.case["servers"]
        if case["backend"]:
            return f"{case.where.policy} {self.library}"
        shard = f" ({case['shard']})" if case["shard"] != "variable" else ""
        world = f"{counted(servers, 'server')}{shard}, {counted(workers(case), 'worker')}" if servers else "one process"
        return f"{case.where.text}, {world}"


def workers(case: Case) -> int:
    """Ranks without parameter servers; one process alone is its own worker."""
    servers = 1 if case.workload in ("ps_bcast", "ps_gather") else int(case["servers"] or 0)
    return max(1, int(case["ranks"]) - servers)


def library_name(backend: str, names: str) -> str | None:
    """The paper's name of a library, from a backend and a text that names the MPI beside it; None: it has none."""
    mpi = next((name for name in ("Open MPI", "MPICH") if name in names), None)
    if backend in ("mpi", "mpi-staged"):
        return mpi
    if backend == "mpi-cuda" and mpi == "Open MPI":
        return "CUDA-aware Open MPI"
    if backend == "nccl":
        return "NCCL" if mpi is None else f"NCCL ({mpi})"
    return None


def items_of(run: Observed) -> list[Item]:
    """The cells of a run that claims on placements and libraries may use; collectives without a time are none."""
    items = []
    for case, cell in run.cells.items():
        library = None
        if case["backend"]:
            if min(cell.medians, default=0) <= 0:
                continue
            names = software(run.manifests[0], case.where.image, case.where.on_host)["library"]
            library = library_name(case["backend"], names)
        items.append(Item(case, library, cell.oversubscribed > 0, cell, run.name, run.interleaved))
    return representatives(items)


def representatives(items: Sequence[Item]) -> list[Item]:
    """Of collectives the largest size, there one for each library and place: native and pinned before others."""
    collectives = [
        item for item in items if item.library and item["op"] in (None, "sum") and item["affinity"] == "near"
    ]
    collectives.sort(key=lambda item: (
        -(item["size"] or 0), item["driver"] != "native", item["staging"] != "pinned",
        *((item[name] != AXES[name].neutral, str(item[name])) for name in ("seccomp", "gpus", "cores", "hosts")),
    ))  # fmt: skip
    largest = {collective["isolation"]: collective["size"] for collective in reversed(collectives)}
    axes = ("workload", "policy", "isolation", "library", "workers")
    alike = grouped((tuple(item[name] for name in axes), item) for item in collectives
                    if item["size"] == largest[item["isolation"]])  # fmt: skip
    kept = {id(item) for item, *_ in alike.values()}
    return [item for item in items if not item.case["backend"] or id(item) in kept]


class Opposed(NamedTuple):
    """Two items of one run, the other against the base; `pair` has their cells, and is None in a plan."""

    base: Item
    other: Item
    pair: Pair | None


@dataclass(frozen=True)
class ContainerKind:
    """What runs measured with one kind of container, and with files on one storage (None: no files).

    `beside_host` has these against the host, `far` those far from their memory or GPU against near ones. `items` are
    cells of this step, empty where another kind of it comes first; `refused` says by run and workload why not.
    """

    place: str = ""
    storage: str | None = None
    step: str | None = None
    beside_host: tuple[Opposed, ...] = ()
    far: tuple[Opposed, ...] = ()
    items: tuple[Item, ...] = ()
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)


def kinds_of(runs: Sequence[Observed], paper: Paper) -> list[ContainerKind]:
    """What runs have of a paper, the most isolated containers first, there the writable layer first; at least one.

    Programs that need no files stand beside the first storage only.
    """
    refused: dict[tuple[str, str], str] = {}
    beside, far = _by_place(runs, paper.programs, refused)
    claimed = [selector for part in paper.parts if part.than is not None for selector in part.selectors]
    steps = grouped((item.case.where.isolation, item) for run in runs for item in items_of(run)
                    if any(selector.takes(item) for selector in claimed) and not item.case.where.on_host)  # fmt: skip

    def order(where: Where) -> tuple[object, ...]:
        return (where.affinity != "near", where.seccomp != "default", -step_order(where.isolation),
                policy_order(where.policy), where.engine)  # fmt: skip

    kinds = [
        ContainerKind(where.text, storage, where.isolation, tuple(cells), tuple(far.get(where, ())),
             tuple(steps.pop(where.isolation, ())), refused)
        for where in sorted(beside, key=order) for storage, cells in _by_storage(beside[where])
    ]  # fmt: skip
    kinds += [ContainerKind("", None, step, items=tuple(steps[step]), refused=refused)
              for step in sorted(steps, key=lambda step: -step_order(step))]  # fmt: skip
    return kinds or [ContainerKind(refused=refused)]


def _by_place(
    runs: Sequence[Observed], programs: Sequence[str], refused: dict[tuple[str, str], str]
) -> tuple[dict[Where, list[Opposed]], dict[Where, list[Opposed]]]:  # fmt: skip
    """Programs in containers against the host, and far from their memory or GPU against near, by the container."""
    beside, far = list[Opposed](), list[Opposed]()
    for run, workload in product(runs, programs):
        of_workload = replace(run, cells={case: cell for case, cell in run.cells.items() if case.workload == workload})
        if {case.where.on_host for case in of_workload.cells} == {True, False}:
            of_policy = _of_factor(of_workload, "policy", (), refused)
            beside += (opposition for opposition in of_policy if opposition.base.case.where.on_host)
        if {case.where.affinity for case in of_workload.cells} >= {"near", "far"}:
            far += _of_factor(of_workload, "affinity", ("near", "far"), {})
    return (grouped((_place(opposition.other.case.where), opposition) for opposition in beside),
            grouped((_place(opposition.base.case.where), opposition) for opposition in far))  # fmt: skip


def _of_factor(
    run: Observed, factor: str, sides: tuple[str, ...], refused: dict[tuple[str, str], str]
) -> Iterator[Opposed]:  # fmt: skip
    """Cells of one workload that differ in a factor; `refused` gets why there are none: what else differs."""
    try:
        pairs = within(run, FACTORS[factor], frozenset({"transport"}), sides)
    except RequestError as error:
        refused[run.name, next(iter(run.cells)).workload] = listed_facts(error)
        return
    for pair in pairs:
        base, other = (Item(cell.case, cell=cell, run=run.name, in_blocks=run.interleaved)
                       for cell in (pair.base, pair.other))  # fmt: skip
        yield Opposed(base, other, pair)


def _place(where: Where) -> Where:
    """The place alone: programs of one paper may need several images."""
    return Where(engine=where.engine, policy=where.policy, isolation=where.isolation, affinity=where.affinity,
                 seccomp=where.seccomp)  # fmt: skip


def _by_storage(opposed: Sequence[Opposed]) -> Iterator[tuple[str | None, list[Opposed]]]:
    """By storage, in the order of the axis; what needs no files belongs to the first."""
    storages = {opposition.other.case.where.storage for opposition in opposed} - {None}
    known = [*(name for name in STORAGES if name in storages), *sorted(storages - {*STORAGES}, key=str)]
    for number, storage in enumerate(known or [None]):
        here = {storage} if number else {storage, None}
        yield storage, [opposition for opposition in opposed if opposition.other.case.where.storage in here]


def two_devices(pair: Pair) -> tuple[str, str] | None:
    """What lies under the files of both sides, where that is not known to be one device; None: it is, or no files."""
    if pair.base.case.where.storage is None:
        return None
    base, other = _devices(pair.base), _devices(pair.other)
    if len(base) == 1 and base == other and all("(" in device or device == "tmpfs" for device in base):
        return None
    return " and ".join(sorted(base)) or "unknown", " and ".join(sorted(other)) or "unknown"


def _devices(cell: Cell) -> set[str]:
    """`ext4 (vda)` of `overlay on ext4 (vda)`: what the files really lie on. All of it where two are named."""
    return {text if ";" in text else text.rpartition(" on ")[2] for text in cell.transports}


def refuse_other_machines(runs: Sequence[Observed], paper: Paper) -> None:
    """Raises RequestError where runs measured a cell on different machines: a verdict on both would be on neither."""
    named = {selector.workload for part in paper.parts for selector in part.selectors}
    measured: dict[Case, tuple[str, str]] = {}
    for run in runs:
        known = facts_of(run, list(run.cells)[:1])
        machine = ", ".join(known[name] for name in ("host", "cpu", "cores", "memory") if known.get(name))
        for case in run.cells:
            other, its_machine = measured.setdefault(case, (run.name, machine))
            if its_machine != machine and any(matches(case.workload, pattern) for pattern in named):
                raise RequestError(
                    f"{other} and {run.name} measured {case.workload} on different machines "
                    f"({its_machine}; {machine}). Give the runs of each machine alone."
                )
