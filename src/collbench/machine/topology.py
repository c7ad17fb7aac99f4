"""Processors and GPUs of a machine with their memory nodes. Read from it, or made up in tests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from collbench.machine import nvml
from collbench.machine.facts import own_cores, parse_cores


@dataclass(frozen=True)
class Core:
    """A logical processor: its number, its memory node, and the lowest number among those that share its core."""

    number: int
    node: int = 0
    first_sibling: int = -1


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

    @property
    def in_order(self) -> tuple[Core, ...]:
        """Node by node; within a node whole cores first, then the second processors of the same cores."""
        return tuple(sorted(self.cores, key=lambda c: (c.node, c.first_sibling not in (-1, c.number), c.number)))

    @property
    def nodes(self) -> tuple[int, ...]:
        """Memory nodes that these processors belong to, ascending."""
        return tuple(sorted({core.node for core in self.cores}))

    def nodes_of(self, numbers: Collection[int]) -> tuple[int, ...]:
        """Memory nodes of the processors with these numbers, ascending."""
        return tuple(sorted({core.node for core in self.cores if core.number in numbers}))


def here(root: Path = Path("/")) -> Topology:
    """The part of this machine that this process may use."""
    allowed = sorted(own_cores())
    nodes = _nodes(root)
    cores = tuple(Core(number, nodes.get(number, 0), _first_sibling(root, number)) for number in allowed)
    facts, no_gpus = nvml.gpus(root)
    gpus = tuple(TopologyGpu(gpu.uuid, gpu.node or 0) for gpu in facts)  # node 0 where it is unknown
    return Topology(cores, gpus, no_gpus)


def _nodes(root: Path) -> dict[int, int]:
    """By number of a processor, its memory node."""
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    return {
        core: int(folder.name.removeprefix("node"))
        for folder in folders
        for core in parse_cores(_read(folder / "cpulist"))
    }


def _first_sibling(root: Path, core: int) -> int:
    siblings = parse_cores(_read(root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))
    return min(siblings, default=-1)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
