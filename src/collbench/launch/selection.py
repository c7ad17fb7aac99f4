"""Which GPUs or cores of a machine a world gets: the first ones, close ones, spread ones, or those that a plan lists.

Two of them have a level: the higher, the nearer. `close` are those whose farthest pair is nearest, of these those with
the largest sum of levels; `spread` those whose nearest pair is farthest, of these those with the smallest sum. Of equal
choices it is the first in the machine's order. Pure functions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, groupby
from math import comb

from collbench.errors import PlanError
from collbench.machine.facts import Core, Topology, TopologyGpu, in_order
from collbench.machine.nvml import UNKNOWN
from collbench.schema.axes import CLOSE, FIRST, SPREAD
from collbench.schema.manifest import Chosen

#: Levels of pairs, [n][n], symmetric: what is on the diagonal is not looked at.
Levels = Sequence[Sequence[int]]

#: Levels of two GPUs that are connected over PCI (the words of `nvidia-smi topo -m`). NVLinks are above them: `NV4` is
#: 8. Of two GPUs of which nothing is known no one is nearer.
_OVER_PCI = {"SYS": 0, "NODE": 1, "PHB": 2, "PXB": 3, "PIX": 4}

#: Levels of two processors: of other sockets, of one socket, one memory node, one last-level cache, one core.
_SOCKET, _NODE, _CACHE, _CORE = 1, 2, 3, 4

#: Sets that are compared one by one; of more, those along the tree of the machine.
_MOST_SETS = 20_000


def level_of_link(link: str) -> int:
    """The level of a connection as NVML names it (`machine.nvml.peers`)."""
    linked = re.fullmatch(r"NV(\d+)", link)
    return max(_OVER_PCI.values()) + int(linked[1]) if linked else _OVER_PCI.get(link, 0)


def level_of_cores(a: Core, b: Core) -> int:
    if a.physical == b.physical:
        return _CORE
    if a.cache == b.cache and a.cache >= 0:
        return _CACHE
    return _NODE if a.node == b.node else _SOCKET if a.socket == b.socket else 0


def gpus_for(topology: Topology, choice: str, workers: int) -> tuple[TopologyGpu, ...]:
    """A GPU for each worker, of a machine that has so many. Raises PlanError: a list that does not fit."""
    gpus = topology.gpus
    if choice == FIRST:
        return gpus[:workers]
    _refuse_cluster("gpus", choice, topology)
    if choice not in (CLOSE, SPREAD):
        return tuple(gpus[number] for number in _listed("gpus", choice, range(len(gpus)), workers, topology))
    if workers in (1, len(gpus)):
        return gpus[:workers]
    pairs = combinations(range(len(gpus)), 2)
    if any(topology.links.get(pair, UNKNOWN) == UNKNOWN for pair in pairs):
        raise PlanError(f"gpus {choice}: NVML does not say how the GPUs of {topology.name} are connected. Write first, "
                        "or their numbers, as 0,1.")  # fmt: skip
    levels = _matrix(len(gpus), {pair: level_of_link(link) for pair, link in topology.links.items()})
    return tuple(gpus[index] for index in select(levels, workers, choice))


def cores_for(topology: Topology, choice: str, ranks: int, each: int) -> tuple[Core, ...]:
    """So many processors for each rank, rank by rank. Raises PlanError: as `gpus_for`.

    `first` are whole cores, node by node. Two ranks share a core only where there are fewer cores than processors asked
    for, and processors only where there are fewer of these: they are then the same for every choice.
    """
    needed = ranks * each
    ordered = in_order(topology.cores, needed)
    if choice != FIRST:
        _refuse_cluster("cores", choice, topology)
    if choice not in (FIRST, CLOSE, SPREAD):
        listed = _listed("cores", choice, topology.by_number, needed, topology)
        return tuple(topology.by_number[number] for number in listed)
    if choice == FIRST or needed > len(ordered):
        return tuple(ordered[i % len(ordered)] for i in range(needed))
    whole = list({core.physical: core for core in reversed(ordered)}.values())
    candidates = whole if needed <= len(whole) else ordered
    blocks = _blocks(candidates, ranks, each)
    pairs = combinations(range(len(blocks)), 2)
    levels = _matrix(len(blocks), {(i, j): level_of_cores(blocks[i][0], blocks[j][0]) for i, j in pairs})
    return tuple(core for index in select(levels, ranks, choice) for core in blocks[index])


def _branch(core: Core) -> tuple[int, ...]:
    return (core.socket, core.node, core.cache, core.physical, core.number)


def _blocks(cores: Sequence[Core], ranks: int, each: int) -> list[list[Core]]:
    """Blocks to choose from: within a core, else a cache, node, socket; where too few, all of them and wider ones."""
    blocks: list[list[Core]] = []
    left = sorted(cores, key=_branch)
    for depth in (4, 3, 2, 1, 0):
        if len(blocks) >= ranks:
            break
        branches = [list(branch) for _, branch in groupby(left, key=lambda core: _branch(core)[:depth])]
        cut = [branch[i : i + each] for branch in branches for i in range(0, len(branch) - each + 1, each)]
        blocks += cut[: ranks - len(blocks)] if blocks else cut
        left = [core for branch in branches for core in branch[len(branch) - len(branch) % each :]]
    return sorted(blocks, key=lambda block: _branch(block[0]))


def describe_gpus(topology: Topology, choice: str, uuids: Sequence[str]) -> Chosen:
    """GPUs of one machine, one for each rank. The limit is that of the GPU that can send least."""
    places = [next(i for i, gpu in enumerate(topology.gpus) if gpu.uuid == uuid) for uuid in uuids]
    pairs = Counter(topology.links.get(pair, UNKNOWN) for pair in combinations(places, 2))
    known = [outlet for place in places if (outlet := _outlet(topology, place, places)) is not None]
    limit, nvlinks, pcie = min(known) if len(known) == len(places) > 1 else (None, 0, False)
    return Chosen(axis="gpus", choice=choice, ranks=len(uuids), members=tuple(places), of=len(topology.gpus),
                  pairs=dict(pairs), limit=limit, nvlinks=nvlinks, pcie=pcie)  # fmt: skip


def _outlet(topology: Topology, place: int, places: Sequence[int]) -> tuple[float, int, bool] | None:
    """B/s that a GPU can send to these others, over how many NVLinks, and whether over PCI; None: a rate is unknown."""
    links = [topology.links.get((place, other), UNKNOWN) for other in places if other != place]
    over_nvlink = [level_of_link(link) - max(_OVER_PCI.values()) for link in links if link.startswith("NV")]
    outlets = topology.gpus[place].outlets
    nvlinks, pcie = min(sum(over_nvlink), outlets.nvlinks), len(over_nvlink) < len(links)
    rates = [outlets.nvlink_rate] * bool(nvlinks) + [outlets.pcie_rate] * pcie
    if None in rates:
        return None
    return (nvlinks * (outlets.nvlink_rate or 0.0) + pcie * (outlets.pcie_rate or 0.0), nvlinks, pcie)


#: What two cores have in common, by level.
_IN_COMMON = {0: "no socket", _SOCKET: "socket", _NODE: "memory node", _CACHE: "last-level cache", _CORE: "core"}


def describe_cores(topology: Topology, choice: str, slots: Sequence[Collection[int]]) -> Chosen:
    """Processors of each rank of one machine: pairs are those of the ranks' first ones."""
    first = [topology.by_number[min(slot)] for slot in slots]
    pairs = Counter(_IN_COMMON[level_of_cores(a, b)] for a, b in combinations(first, 2))
    return Chosen(axis="cores", choice=choice, ranks=len(slots), of=len({core.physical for core in topology.cores}),
                  members=tuple(core for slot in slots for core in sorted(slot)), pairs=dict(pairs))  # fmt: skip


def _refuse_cluster(key: str, choice: str, topology: Topology) -> None:
    if topology.of_cluster:
        raise PlanError(f"{key} {choice}: on {topology.name} the cluster decides. Leave it out; a site file for Slurm "
                        'may say options = ["--gpu-bind=closest"].')  # fmt: skip


def _listed(key: str, choice: str, known: range | Mapping[int, Core], needed: int, topology: Topology) -> list[int]:
    numbers = [int(number) for number in choice.split(",")]
    if unknown := [number for number in numbers if number not in known]:
        raise PlanError(f"{key} {choice}: {topology.name} has no {unknown[0]}. It has {_ranges(sorted(known))}.")
    if len(numbers) != needed:
        raise PlanError(f"{key} {choice}: lists {len(numbers)}, and the ranks need {needed}. A list fits one number of "
                        "ranks: write a plan for each.")  # fmt: skip
    return numbers


def _ranges(numbers: Sequence[int]) -> str:
    whole = len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{numbers[0]} to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


def _matrix(n: int, levels: Mapping[tuple[int, int], int]) -> list[list[int]]:
    return [[levels.get((min(i, j), max(i, j)), 0) for j in range(n)] for i in range(n)]


def select(levels: Levels, k: int, choice: str) -> tuple[int, ...]:
    """The indices of `k` of n, ascending: `close` or `spread`, whichever `choice` says."""
    sign = 1 if choice == CLOSE else -1
    return _of_all(levels, k, sign) if comb(len(levels), k) <= _MOST_SETS else _of_tree(levels, k, sign)


def _of_all(levels: Levels, k: int, sign: int) -> tuple[int, ...]:
    def worth(members: tuple[int, ...]) -> tuple[int, int]:
        pairs = [sign * levels[i][j] for i, j in combinations(members, 2)]
        return min(pairs, default=0), sum(pairs)

    return max(combinations(range(len(levels)), k), key=worth)


#: By number of members the best sum of levels and these members; None where there are none with the least level.
_Best = list["tuple[int, tuple[int, ...]] | None"]


def _of_tree(levels: Levels, k: int, sign: int) -> tuple[int, ...]:
    """Exact where levels are those of a tree: of three pairs of three members the two lowest are equal."""
    distinct = sorted({level for i, row in enumerate(levels) for level in row[:i]})
    for least in sorted((sign * level for level in distinct), reverse=True):
        best = _best_of(range(len(levels)), levels, distinct, k, sign, least)
        if (chosen := best[k] if k < len(best) else None) is not None:
            return chosen[1]
    raise AssertionError("with the lowest level any set will do")


def _best_of(members: Sequence[int], levels: Levels, distinct: Sequence[int], k: int, sign: int, least: int) -> _Best:
    """Of the members of a branch, whose parts have one level among each other."""
    if len(members) == 1:
        return [(0, ()), (0, (members[0],))]
    for level in distinct:
        parts = list(_connected(members, levels, level))
        if len(parts) > 1:
            break
    best: _Best = [(0, ())]
    for part in parts:
        best = _joined(best, _best_of(part, levels, distinct, k, sign, least), sign * level, k, sign * level >= least)
    return best


def _joined(ours: _Best, theirs: _Best, worth: int, k: int, allowed: bool) -> _Best:
    """Members of both, where pairs across them are `allowed`, or of one."""
    both: _Best = [None] * (min(k, len(ours) + len(theirs) - 2) + 1)
    for i, mine in enumerate(ours):
        for j, other in enumerate(theirs[: len(both) - i]):
            if mine is None or other is None or (i and j and not allowed):
                continue
            total, members = mine[0] + other[0] + i * j * worth, tuple(sorted(mine[1] + other[1]))
            known = both[i + j]
            if known is None or (-total, members) < (-known[0], known[1]):
                both[i + j] = total, members
    return both


def _connected(members: Sequence[int], levels: Levels, above: int) -> Iterator[list[int]]:
    """Groups of members, each connected by pairs of a level above this one."""
    left = list(members)
    while left:
        group = [left.pop(0)]
        for member in group:
            near = [other for other in left if levels[member][other] > above]
            group += near
            left = [other for other in left if other not in near]
        yield sorted(group)
