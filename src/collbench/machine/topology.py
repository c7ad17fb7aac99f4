"""Processors and GPUs of a machine with their memory nodes. Read from it, or made up in tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from collbench.machine import nvml
from collbench.machine.cgroup import text_of
from collbench.machine.facts import own_cores, parse_cores, thread_siblings


@dataclass(frozen=True)
class Core:
    """A logical processor: its number, its memory node, and the lowest number among those that share its core."""

    number: int
    node: int = 0
    first_sibling: int = -1

    @property
    def physical(self) -> int:
        """Equal for the processors that share a core."""
        return self.number if self.first_sibling < 0 else self.first_sibling

    @property
    def is_first(self) -> bool:
        return self.physical == self.number


@dataclass(frozen=True)
class TopologyGpu:
    """A GPU by its UUID, with its memory node."""

    uuid: str
    node: int = 0


@dataclass(frozen=True)
class Topology:
    """Processors that this process may use, and GPUs in NVML's order (by bus). `no_gpus` says why there are none.

    `name` is what messages call it.
    """

    cores: tuple[Core, ...]
    gpus: tuple[TopologyGpu, ...] = ()
    no_gpus: str = ""
    name: str = "this machine"

    def physical(self, numbers: Collection[int]) -> frozenset[int]:
        """The cores of processors with these numbers, each by the lowest number among its hardware threads."""
        by_number = self._by_number
        return frozenset(by_number[number].physical if number in by_number else number for number in numbers)

    @cached_property
    def _by_number(self) -> dict[int, Core]:
        return {core.number: core for core in self.cores}

    @property
    def in_order(self) -> tuple[Core, ...]:
        """Whole cores first, then the second processors of the same cores; both node by node."""
        return in_order(self.cores)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Memory nodes that these processors belong to, ascending."""
        return tuple(sorted({core.node for core in self.cores}))

    def nodes_of(self, numbers: Collection[int]) -> tuple[int, ...]:
        """Memory nodes of the processors with these numbers, ascending."""
        by_number = self._by_number
        return tuple(sorted({by_number[number].node for number in numbers if number in by_number}))


def in_order(cores: Iterable[Core], needed: int = 0) -> tuple[Core, ...]:
    """One processor of each core before the others, where so many are enough; else core by core. Both node by node."""
    ordered = sorted(cores, key=lambda core: (not core.is_first, core.node, core.number))
    if needed > sum(core.is_first for core in ordered):
        ordered.sort(key=lambda core: (core.node, core.physical, core.number))
    return tuple(ordered)


def here(root: Path = Path("/")) -> Topology:
    """The part of this machine that this process may use."""
    allowed = sorted(own_cores())
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    nodes = {core: int(folder.name.removeprefix("node"))
             for folder in folders for core in parse_cores(text_of(folder / "cpulist") or "")}  # fmt: skip
    cores = tuple(Core(number, nodes.get(number, 0), thread_siblings(number, root)[0]) for number in allowed)
    facts, no_gpus = nvml.gpus(root)
    gpus = tuple(TopologyGpu(gpu.uuid, gpu.node or 0) for gpu in facts)  # node 0 where it is unknown
    return Topology(cores, gpus, no_gpus)
