"""What runs have of a paper: cells with the axes of papers, and comparisons of each kind of container with the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from collbench.analysis import pairs as pairs_module
from collbench.analysis.environment import facts, software
from collbench.analysis.factors import FACTORS
from collbench.analysis.pairs import Pair, within
from collbench.analysis.paper.reference import Paper, matches
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed
from collbench.errors import RequestError
from collbench.schema.axes import STORAGES, step_order
from collbench.schema.case import Case, Where
from collbench.schema.place import policy_order
from collbench.units import counted


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

    def item(cell: Cell) -> Item:
        case, library = cell.case, None
        if case["backend"]:
            names = software(run.manifests[0], case.where.image, case.where.on_host)["library"]
            library = library_name(case["backend"], names)
        return Item(case, library, cell.oversubscribed > 0, cell, run.name, run.interleaved)

    cells = run.cells.values()
    return representatives(item(one) for one in cells if not one.case["backend"] or min(one.medians, default=0) > 0)


def representatives(items: Iterable[Item]) -> list[Item]:
    """Of collectives the largest size, there one for each library and place: native and pinned before others."""
    every = list(items)
    collectives = [one for one in every if one.library and one["op"] in (None, "sum") and one["affinity"] == "near"]
    collectives.sort(key=lambda one: (-(one["size"] or 0), one["driver"] != "native", one["staging"] != "pinned"))
    largest = {one["isolation"]: one["size"] for one in reversed(collectives)}
    first: dict[tuple[object, ...], Item] = {}
    for one in collectives:
        if one["size"] == largest[one["isolation"]]:
            axes = ("workload", "policy", "isolation", "library", "workers")
            first.setdefault(tuple(one[name] for name in axes), one)
    kept = set(map(id, first.values()))
    return [one for one in every if not one.case["backend"] or id(one) in kept]


@dataclass(frozen=True)
class Opposed:
    """Two items of one run, the other against the base; `pair` has their cells, and is None in a plan."""

    base: Item
    other: Item
    pair: Pair | None


@dataclass(frozen=True)
class Kind:
    """What runs measured with one kind of container, and with files on one storage (None: no files).

    `beside_host` has these containers against the host, `far` the same ones far from their memory or GPU against near
    ones. `items` are the cells of this step of isolation, empty where another kind of the same step comes first.
    `refused` says by run and workload why sides are not compared.
    """

    place: str = ""
    storage: str | None = None
    step: str | None = None
    beside_host: tuple[Opposed, ...] = ()
    far: tuple[Opposed, ...] = ()
    items: tuple[Item, ...] = ()
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """`multi strict, files on overlay`; `step strict` of collectives and trainings alone."""
        files = "" if self.storage is None else f"files on {self.storage}"
        step = f"step {self.step}" if self.step and not self.place else ""
        return ", ".join(word for word in (self.place, step, files) if word)


def kinds_of(runs: Sequence[Observed], paper: Paper) -> list[Kind]:
    """What runs have of a paper, the most isolated containers first, there the writable layer first; at least one.

    Programs that need no files stand beside the first storage only.
    """
    refused: dict[tuple[str, str], str] = {}
    beside, far = _by_place(runs, paper.programs, refused)
    claimed = [one for part in paper.parts if part.than is not None for one in part.selectors]
    steps: dict[str | None, list[Item]] = {}
    for item in (item for run in runs for item in items_of(run)):
        if any(one.takes(item) for one in claimed) and not item.case.where.on_host:
            steps.setdefault(item.case.where.isolation, []).append(item)
    kinds = []
    for where in sorted(beside, key=_order):
        for storage, opposed in _by_storage(beside[where]):
            mine = tuple(steps.pop(where.isolation, ()))
            kinds.append(
                Kind(where.text, storage, where.isolation, tuple(opposed), tuple(far.get(where, ())), mine, refused)
            )
    kinds += [Kind("", None, step, items=tuple(steps[step]), refused=refused)
              for step in sorted(steps, key=lambda step: -step_order(step))]  # fmt: skip
    return kinds or [Kind(refused=refused)]


_ByPlace = dict[Where, list[Opposed]]


def _by_place(
    runs: Sequence[Observed], programs: Sequence[str], refused: dict[tuple[str, str], str]
) -> tuple[_ByPlace, _ByPlace]:  # fmt: skip
    """Programs in containers against the host, and far from their memory or GPU against near, by the container."""
    beside: _ByPlace = {}
    far: _ByPlace = {}
    for run, workload in product(runs, programs):
        own = replace(run, cells={case: cell for case, cell in run.cells.items() if case.workload == workload})
        if {case.where.on_host for case in own.cells} == {True, False}:
            for one in _of_factor(own, "policy", (), refused):
                if one.base.case.where.on_host:
                    beside.setdefault(_place(one.other.case.where), []).append(one)
        if {case.where.affinity for case in own.cells} == {"near", "far"}:
            for one in _of_factor(own, "affinity", ("near", "far"), {}):
                far.setdefault(_place(one.base.case.where), []).append(one)
    return beside, far


def _of_factor(
    run: Observed, factor: str, sides: tuple[str, ...], refused: dict[tuple[str, str], str]
) -> Iterator[Opposed]:  # fmt: skip
    """Cells of one workload that differ in a factor; `refused` gets why there are none: what else differs."""
    try:
        pairs = within(run, FACTORS[factor], frozenset({pairs_module.NAME}), sides)
    except RequestError as error:
        refused[run.name, next(iter(run.cells)).workload] = _differences(error)
        return
    for pair in pairs:
        base, other = (
            Item(cell.case, None, False, cell, run.name, run.interleaved) for cell in (pair.base, pair.other)
        )
        yield Opposed(base, other, pair)


def _differences(error: RequestError) -> str:
    """The lines of a refusal that say what differs; all of it where it has none."""
    lines = str(error).splitlines()
    return "; ".join(line.strip() for line in lines if line.startswith("  ")) or " ".join(lines)


def _place(where: Where) -> Where:
    """The place alone: programs of one paper may need several images."""
    return Where(engine=where.engine, policy=where.policy, isolation=where.isolation, affinity=where.affinity,
                 seccomp=where.seccomp)  # fmt: skip


def _order(where: Where) -> tuple[object, ...]:
    return (where.affinity != "near", where.seccomp != "default", -step_order(where.isolation),
            policy_order(where.policy), where.engine)  # fmt: skip


def _by_storage(opposed: Sequence[Opposed]) -> Iterator[tuple[str | None, list[Opposed]]]:
    """By storage, in the order of the axis; what needs no files belongs to the first."""
    storages = {one.other.case.where.storage for one in opposed}
    order = {name: number for number, name in enumerate(STORAGES)}
    known = sorted((one for one in storages if one is not None), key=lambda one: (order.get(one, len(order)), one))
    for number, storage in enumerate(known or [None]):
        wanted = {storage, None} if number == 0 else {storage}
        yield storage, [one for one in opposed if one.other.case.where.storage in wanted]


def other_device(pair: Pair) -> tuple[str, str] | None:
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
    """Refuse runs that measured one cell of the paper on different machines: a verdict on both would be on neither.

    Raises:
        RequestError: names two of them, the cell, and the machines.
    """
    named = {one.workload for part in paper.parts for one in part.selectors}
    measured: dict[Case, tuple[str, str]] = {}
    for run in runs:
        machine = _machine(run)
        for case in run.cells:
            other, its_machine = measured.setdefault(case, (run.name, machine))
            if its_machine != machine and any(matches(case.workload, one) for one in named):
                raise RequestError(
                    f"{other} and {run.name} measured {case.workload} on different machines "
                    f"({its_machine}; {machine}). Give the runs of each machine alone."
                )


def _machine(run: Observed) -> str:
    """`node1, Xeon ..., 28`."""
    known = facts(run, list(run.cells)[:1])
    return ", ".join(known[name] for name in ("host", "cpu", "cores", "memory") if known.get(name))
