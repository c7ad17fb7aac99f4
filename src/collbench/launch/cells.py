"""The cells of a launch plan, and the order of launches.

Pure: a plan can be shown before anything starts.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from collbench import backends, collectives, workloads
from collbench.collectives.row import CollectiveCase
from collbench.errors import PlanError
from collbench.run.cases import cases_of, program_cases, refuse_cadence
from collbench.schema.axes import FIRST
from collbench.schema.case import Case, Where
from collbench.schema.plan import Affinity, Benchmark, Plan, name_of
from collbench.units import counted
from collbench.workloads.program import Program, ProgramCase

#: What a plan that does not say measures with; a program runs on one rank.
DEFAULT_RANKS, DEFAULT_BACKENDS, RANKS_OF_PROGRAMS = (2,), ("mpi",), (1,)


@dataclass(frozen=True)
class LaunchCell:
    """One way to start a world: a `Where`, and what the records of its ranks do not say.

    `isolation` is a step of the engine's ladder; None where its boxes isolate nothing. On the host `image` names
    the environment to use. The first `servers` ranks are parameter servers for the others. `storage` is what lies
    under the files of its programs; None where it measures none that works in files. `gpus` and `cores` are those
    of the machine that its ranks get (`launch.selection`). `seccomp` is the filter of system calls in containers.
    `side` is one of the plan's; where it has `image` in place of one of the plan's images, it `replaces` that one.
    """

    image: str
    policy: str
    isolation: str | None
    ranks: int
    affinity: Affinity = "near"
    gpus: str = FIRST
    cores: str = FIRST
    servers: int = 0
    engine: str = "docker"
    storage: str | None = None
    seccomp: str = "default"
    hosts: int = 1
    side: str | None = None
    replaces: str = ""

    @property
    def where(self) -> Where:
        """As the records of its worlds have it, whose image is the plan's."""
        values = {name: getattr(self, name) for name in Where.__struct_fields__}
        return Where(**values | {"image": self.plan_image})

    @property
    def title(self) -> str:
        """`openmpi single strict, 2 ranks`, or `... 1 server and 2 workers`."""
        place = (self.side and f"{self.side}:", self.plan_image, self.where.text, self.storage and f"on {self.storage}")
        world = counted(self.ranks, "rank")
        if self.servers:
            world = f"{counted(self.servers, 'server')} and {counted(self.ranks - self.servers, 'worker')}"
        return f"{' '.join(filter(None, place))}, {world}{f' on {self.hosts} hosts' if self.hosts > 1 else ''}"

    @property
    def plan_image(self) -> str:
        return self.replaces or self.image

    @property
    def parts(self) -> tuple[LaunchCell, ...]:
        """Cut where its hosts differ, in the order of ranks: of several hosts servers have the first to themselves."""
        if not self.servers or self.hosts == 1:
            return (self,)
        workers = replace(self, ranks=self.ranks - self.servers, servers=0, hosts=self.hosts - 1)
        return replace(self, ranks=self.servers, servers=0, hosts=1), workers


@dataclass(frozen=True)
class LaunchPart:
    """What a launch executes of its cell's cases, as its world records them: `brief` are those without a record.

    They are executed in their places, so that what follows them finds the same as where they are measured.
    """

    measured: frozenset[Case]
    brief: frozenset[Case] = frozenset()


@dataclass(frozen=True)
class Launch:
    """One start of a cell: in the `number`-th block, as the `sequence`-th of the experiment, both from 0.

    `only` is what it executes; None: all cases of its cell.
    """

    cell: LaunchCell
    number: int
    sequence: int
    only: LaunchPart | None = None


def worlds_of(plan: Plan) -> tuple[tuple[int, int], ...]:
    """(ranks, parameter servers) of every world. W workers with S servers are W + S ranks.

    Of a program with servers 0 is the world of one process. Collectives have no world of one rank beside others.
    """
    programs = [workloads.get(name) for name in plan.workloads]
    if not plan.workers:
        default = DEFAULT_RANKS if all(program.distributed for program in programs) else RANKS_OF_PROGRAMS
        return tuple((ranks, 0) for ranks in plan.ranks or default)
    numbers = {int(collectives.get(name).has_server) for name in plan.collectives}
    numbers |= {0 for program in programs if not program.servers}
    with_servers = plan.servers if any(program.servers for program in programs) else ()
    worlds = [(workers + servers, servers) for workers in plan.workers for servers in sorted(numbers)]
    if all(program.servers for program in programs):
        worlds = [(ranks, servers) for ranks, servers in worlds if ranks > 1] or worlds
    worlds += [(workers + servers, servers) if servers else (1, 0)
               for workers in plan.workers for servers in with_servers]  # fmt: skip
    return tuple(dict.fromkeys(worlds))


def storages_of(plan: Plan) -> tuple[str | None, ...]:
    """None for a world that measures what needs no files, and each storage for one that measures what does."""
    in_files = [workloads.get(name).files for name in plan.workloads]
    without = (None,) if plan.collectives or not all(in_files) else ()
    return (*without, *(plan.storage if any(in_files) else ()))


def cases_in(plan: Plan, cell: LaunchCell) -> tuple[CollectiveCase | ProgramCase, ...]:
    """What a world of a cell measures, or PlanError: a name, a root or a number of ranks that cannot be."""
    inner = inner_plan(plan, cell)
    names = inner["backends"] if inner.collectives else ()
    cases = tuple(dict.fromkeys(case for name in names for case in cases_of(inner, name, cell.ranks)))
    if inner.collectives and all(cell.ranks < collectives.get(case.collective).min_ranks for case in cases):
        raise PlanError(f"{cell.title}: {', '.join(inner.collectives)} needs more ranks. Raise ranks or workers.")
    return (*cases, *program_cases(inner, cell.ranks))


def check_backends(plan: Plan) -> None:
    """Whether ranks of a launch can use every backend, and one has the cadence.

    Raises PlanError, BackendUnavailable (there is none of that name) or RequestError (the cadence).
    """
    names = dict.fromkeys(name for image in plan.images for name in backends_of(plan, image))
    for name, backend in ((name, backends.get(name)) for name in names):
        if backend.simulated:
            raise PlanError(f"backend {name}: simulates its times and starts no ranks. Remove it from the launch plan.")
        if backend.device == "gpu" and plan.device != "gpu":
            raise PlanError(f'backend {name}: its data is on GPUs, and device is "cpu". Set device = "gpu".')
    refuse_cadence(plan, names)


def inner_plan(plan: Plan, cell: LaunchCell, folder: str = "") -> Plan:
    """The plan that a world is given: the backends of its image; with workers, collectives with a server or without.

    Programs that work in files are measured where there is a storage, which ranks find in `folder`; all else where not.
    """
    names = plan.collectives if cell.storage is None else ()
    if plan.workers:
        names = tuple(name for name in names if collectives.get(name).has_server == cell.servers)
    benchmarks = tuple(_with_servers(plan, cell, benchmark) for benchmark in plan.benchmarks
                       if _measured_in(plan, cell, workloads.get(name_of(benchmark))))  # fmt: skip
    return msgspec.structs.replace(
        plan.of_world(), collectives=names, backends=backends_of(plan, cell.plan_image) if names else (),
        benchmarks=benchmarks, sizes=plan["sizes"] if names else None, folder=folder,
    )  # fmt: skip


def _measured_in(plan: Plan, cell: LaunchCell, program: Program) -> bool:
    """Whether a cell has the storage, and where the plan counts workers, the servers of a program."""
    has_servers = cell.servers == 0
    if program.servers:
        has_servers = cell.servers in plan.servers and (cell.servers > 0 or cell.ranks == 1)
    return program.files == (cell.storage is not None) and (not plan.workers or has_servers)


def _with_servers(plan: Plan, cell: LaunchCell, benchmark: Benchmark) -> Benchmark:
    """As the plan has it, with the servers of the cell where the plan counts workers, or PlanError: it has both."""
    counts = workloads.get(name_of(benchmark)).servers
    if not plan.workers or not counts:
        return benchmark
    keys: dict[str, Any] = {"name": benchmark} if isinstance(benchmark, str) else dict(benchmark)
    if counts in keys:
        listed = list(keys[counts]) if isinstance(keys[counts], list | tuple) else [keys[counts]]
        raise PlanError(
            f"benchmark {keys['name']}: {counts} = {keys[counts]!r}, and of a plan with workers servers says how many "
            f"there are. Remove it from the benchmark, and write servers = {listed} beside workers."
        )
    return keys | {counts: cell.servers}


def communicates(plan: Plan) -> bool:
    """Whether its ranks need a library that starts them; programs of one rank need none."""
    return bool(plan.collectives) or any(workloads.get(name).distributed for name in plan.workloads)


def backends_of(plan: Plan, image: str) -> tuple[str, ...]:
    """The backends that are measured with an image: none in a plan of programs alone."""
    if not plan.collectives:
        return ()
    return plan.image_backends.get(image, plan["backends"]) or DEFAULT_BACKENDS


def order_of(plan: Plan, cells: Collection[LaunchCell]) -> tuple[Launch, ...]:
    """Blocks of every cell once, in a random order that follows from the seed; both sides of a cell stand together."""
    sides_of: dict[LaunchCell, list[LaunchCell]] = {}
    for cell in cells:
        sides_of.setdefault(replace(cell, side=None, image=cell.plan_image, replaces=""), []).append(cell)
    order: list[Launch] = []
    for number in range(plan.launches):
        generator = random.Random(f"{plan.seed}/{number}")  # noqa: S311 - an order, not a secret
        groups = generator.sample(tuple(sides_of.values()), len(sides_of))
        block = [cell for group in groups for cell in generator.sample(group, len(group))]
        order += [Launch(cell, number, position) for position, cell in enumerate(block, start=len(order))]
    return tuple(order)
