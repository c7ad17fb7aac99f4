"""Which GPUs and cores ranks get: against a search through all sets, on made-up machines, and by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from math import comb

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collbench.errors import PlanError
from collbench.launch import selection
from collbench.launch.selection import (
    cores_for,
    describe_cores,
    describe_gpus,
    gpus_for,
    level_of_cores,
    level_of_link,
    select,
)
from collbench.machine.facts import Core, Topology, TopologyGpu
from collbench.machine.nvml import Outlets

Links = Mapping[tuple[int, int], str]


def machine(links: Links) -> Topology:
    n = max(j for _, j in links) + 1
    both = {**links, **{(j, i): link for (i, j), link in links.items()}}
    return Topology((Core(0),), tuple(TopologyGpu(f"GPU-{i}") for i in range(n)), links=both)


def linked(n: int, link: Callable[[int, int], str]) -> Topology:
    return machine({pair: link(*pair) for pair in combinations(range(n), 2)})


#: NVLinks of the eight V100 of a DGX-1, two quads, as `nvidia-smi topo -m` shows them.
_CUBE = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2, (2, 6): 1, (3, 7): 1,
         (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2}  # fmt: skip

MACHINES = {
    "DGX-1, cube mesh": linked(8, lambda i, j: f"NV{_CUBE[i, j]}" if (i, j) in _CUBE else "SYS"),
    "A100 behind NVSwitch": linked(8, lambda i, j: "NV12"),
    "DGX-2": linked(16, lambda i, j: "NV6"),
    "four A100, each linked to each": linked(4, lambda i, j: "NV4"),
    "two switches on one socket": linked(8, lambda i, j: "PIX" if i // 4 == j // 4 else "NODE"),
    "switches below switches, two sockets": linked(
        8, lambda i, j: "PIX" if i // 2 == j // 2 else "PXB" if i // 4 == j // 4 else "SYS"),
    "NVLink pairs, two sockets": linked(
        8, lambda i, j: "NV4" if i // 2 == j // 2 else "NODE" if i // 4 == j // 4 else "SYS"),
    "bridges across sockets": linked(8, lambda i, j: "NV4" if j - i == 4 else "PHB" if i // 4 == j // 4 else "SYS"),
    "slices of two GPUs": linked(14, lambda i, j: "PIX" if i // 7 == j // 7 else "SYS"),
    "a GPU on each of two sockets": linked(2, lambda i, j: "SYS"),
    "below host bridges": linked(6, lambda i, j: "PHB" if i // 3 == j // 3 else "NODE"),
}  # fmt: skip


def by_search(levels: dict[tuple[int, int], int], n: int, k: int, choice: str) -> tuple[int, ...]:
    """The definition: the extreme level first, then the sum, then the machine's order."""
    ranked = []
    for members in combinations(range(n), k):
        pairs = [levels[pair] for pair in combinations(members, 2)] or [0]
        near = (-min(pairs), -sum(pairs)) if choice == "close" else (max(pairs), sum(pairs))
        ranked.append((near, members))
    return min(ranked)[1]


@pytest.mark.parametrize("choice", ["close", "spread"])
@pytest.mark.parametrize("name", MACHINES)
def test_no_other_set_of_gpus_is_closer_or_farther_apart(name: str, choice: str) -> None:
    topology = MACHINES[name]
    levels = {pair: level_of_link(link) for pair, link in topology.links.items()}
    n = len(topology.gpus)
    for k in range(1, min(n, 8) + 1):
        expected = tuple(f"GPU-{i}" for i in by_search(levels, n, k, choice))
        assert tuple(gpu.uuid for gpu in gpus_for(topology, choice, k)) == expected, k


@pytest.mark.parametrize(
    ("name", "choice", "k", "expected"),
    [
        ("DGX-1, cube mesh", "close", 2, (0, 3)),
        ("DGX-1, cube mesh", "close", 4, (0, 1, 2, 3)),
        ("DGX-1, cube mesh", "spread", 2, (0, 5)),
        ("NVLink pairs, two sockets", "close", 4, (0, 1, 2, 3)),
        ("NVLink pairs, two sockets", "spread", 2, (0, 4)),
        ("NVLink pairs, two sockets", "spread", 4, (0, 2, 4, 6)),
        ("bridges across sockets", "close", 2, (0, 4)),
        ("slices of two GPUs", "spread", 2, (0, 7)),
        ("A100 behind NVSwitch", "spread", 3, (0, 1, 2)),
    ],
)
def test_by_hand(name: str, choice: str, k: int, expected: tuple[int, ...]) -> None:
    assert tuple(gpu.uuid for gpu in gpus_for(MACHINES[name], choice, k)) == tuple(f"GPU-{i}" for i in expected)


def with_outlets(topology: Topology, nvlinks: int, pcie: float | None = 60e9) -> Topology:
    outlets = Outlets(nvlinks, 25e9, pcie)
    return replace(topology, gpus=tuple(replace(gpu, outlets=outlets) for gpu in topology.gpus))


@pytest.mark.parametrize(
    ("name", "nvlinks", "members", "expected"),
    [
        ("A100 behind NVSwitch", 12, (0, 1, 2), (300e9, 12, False)),  # all links reach every other GPU
        ("four A100, each linked to each", 12, (0, 1, 2), (200e9, 8, False)),  # those to the fourth are of no use
        ("NVLink pairs, two sockets", 4, (0, 1, 2), (60e9, 0, True)),  # the third has no partner
        ("NVLink pairs, two sockets", 4, (0, 1, 2, 3), (160e9, 4, True)),
        ("below host bridges", 0, (0, 1), (60e9, 0, True)),
    ],
)
def test_what_the_gpu_with_the_least_can_send(
    name: str, nvlinks: int, members: tuple[int, ...], expected: tuple[float, int, bool]
) -> None:
    chosen = describe_gpus(with_outlets(MACHINES[name], nvlinks), "close", [f"GPU-{i}" for i in members])
    assert (chosen.limit, chosen.nvlinks, chosen.pcie) == expected
    pairs = comb(len(members), 2)
    assert (chosen.members, sum(chosen.pairs.values()), chosen.of) == (members, pairs, len(MACHINES[name].gpus))


def test_what_gpus_can_send_is_unknown_where_a_rate_is_or_where_there_is_one() -> None:
    pairs = MACHINES["NVLink pairs, two sockets"]
    assert describe_gpus(with_outlets(pairs, 4, None), "first", ["GPU-0", "GPU-2"]).limit is None
    assert describe_gpus(with_outlets(pairs, 4), "first", ["GPU-0"]).limit is None


@st.composite
def trees(draw: st.DrawFn) -> list[list[int]]:
    """Levels of a tree: members of one branch are nearer than those of others."""
    paths = draw(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=2, max_size=9))

    def level(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        return next((depth for depth, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), 3)

    return [[level(a, b) for b in paths] for a in paths]


@given(trees(), st.data(), st.sampled_from(["close", "spread"]))
def test_along_the_tree_of_a_machine_the_choice_is_that_of_the_search(
    levels: list[list[int]], data: st.DataObject, choice: str
) -> None:
    n = len(levels)
    k = data.draw(st.integers(1, n))
    pairs = {(i, j): levels[i][j] for i, j in combinations(range(n), 2)}
    assert selection._of_tree(levels, k, 1 if choice == "close" else -1) == by_search(pairs, n, k, choice)


def test_many_slices_are_chosen_in_no_time() -> None:
    """56 of eight GPUs, of which eight are C(56, 8), 1.4e9 sets."""
    levels = [[4 if i // 7 == j // 7 else 1 if i // 28 == j // 28 else 0 for j in range(56)] for i in range(56)]
    assert select(levels, 8, "spread") == tuple(range(0, 56, 7))
    assert select(levels, 9, "close") == tuple(range(9))


def cores_of(sockets: int, nodes: int, caches: int, cores: int, threads: int = 1) -> tuple[Core, ...]:
    """So many of each in the one above; second hardware threads are numbered after all first ones, as on Linux."""
    whole, made = sockets * nodes * caches * cores, []
    for number in range(whole * threads):
        core = number % whole
        cache = core // cores
        made.append(Core(number, cache // caches, core, cache * cores, cache // caches // nodes))
    return tuple(made)


EPYC, XEON = cores_of(1, 2, 2, 4, threads=2), cores_of(2, 1, 1, 6)


@pytest.mark.parametrize("choice", ["close", "spread"])
@pytest.mark.parametrize("cores", [EPYC, XEON, cores_of(2, 2, 1, 2)], ids=["epyc", "xeon", "nodes"])
def test_no_other_set_of_cores_is_closer_or_farther_apart(cores: tuple[Core, ...], choice: str) -> None:
    whole = [core for core in cores if core.number == core.physical]
    levels = {(i, j): level_of_cores(whole[i], whole[j]) for i, j in combinations(range(len(whole)), 2)}
    for k in range(1, 9):
        expected = by_search(levels, len(whole), min(k, len(whole)), choice)
        if k <= len(whole):
            assert tuple(core.number for core in cores_for(Topology(cores), choice, k, 1)) == expected, k


@pytest.mark.parametrize(
    ("cores", "choice", "ranks", "each", "expected"),
    [
        (EPYC, "first", 2, 1, (0, 1)),
        (EPYC, "spread", 2, 1, (0, 8)),
        (EPYC, "spread", 4, 1, (0, 4, 8, 12)),
        (EPYC, "spread", 2, 4, (0, 1, 2, 3, 8, 9, 10, 11)),
        (EPYC, "close", 2, 4, (0, 1, 2, 3, 4, 5, 6, 7)),
        (cores_of(1, 1, 2, 3), "close", 2, 2, (0, 1, 3, 4)),
        (cores_of(1, 2, 2, 3), "close", 5, 2, (0, 1, 2, 5, 3, 4, 6, 7, 9, 10)),  # one rank crosses caches, not two
        (EPYC, "3,1", 2, 1, (3, 1)),
        (EPYC, "0,16", 2, 1, (0, 16)),  # two hardware threads of one core, since they are asked for
        (XEON, "close", 2, 1, (0, 1)),
        (XEON, "spread", 2, 1, (0, 6)),
    ],
)
def test_cores_by_hand(cores: tuple[Core, ...], choice: str, ranks: int, each: int, expected: tuple[int, ...]) -> None:
    assert tuple(core.number for core in cores_for(Topology(cores), choice, ranks, each)) == expected


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 3), st.data(),
       st.sampled_from(["close", "spread"]))  # fmt: skip
def test_ranks_with_several_cores_are_chosen_among_blocks_in_one_cache_where_there_are_enough(
    sizes: list[int], each: int, data: st.DataObject, choice: str
) -> None:
    """Caches of so many cores, two of a memory node, one socket."""
    caches = [cache for cache, size in enumerate(sizes) for _ in range(size)]
    cores = tuple(Core(n, cache // 2, n, caches.index(cache), 0) for n, cache in enumerate(caches))
    assume(each <= len(cores))
    ranks = data.draw(st.integers(1, len(cores) // each))
    found = [core.number for core in cores_for(Topology(cores), choice, ranks, each)]
    of_ranks = [{caches[n] for n in found[first : first + each]} for first in range(0, len(found), each)]
    inside = [cache for cache, size in enumerate(sizes) for _ in range(size // each)]
    assert len({*found}) == ranks * each and sum(len(of) == 1 for of in of_ranks) >= min(ranks, len(inside))
    if ranks <= len(inside):
        levels = {(i, j): 3 if inside[i] == inside[j] else 2 if inside[i] // 2 == inside[j] // 2 else 1
                  for i, j in combinations(range(len(inside)), 2)}  # fmt: skip
        expected = [{inside[i]} for i in by_search(levels, len(inside), ranks, choice)]
        assert of_ranks == expected


def test_the_only_thread_of_a_core_that_may_be_used_counts_as_the_core() -> None:
    """Both threads of the first core, and the second ones of two others."""
    cores = (Core(0, 0, 0), Core(4, 0, 0), Core(5, 0, 1), Core(6, 0, 2))
    for choice in ("first", "close", "spread"):
        assert [core.number for core in cores_for(Topology(cores), choice, 3, 1)] == [0, 5, 6]


def test_a_choice_is_of_cores_not_of_hardware_threads() -> None:
    chosen = describe_cores(Topology(EPYC), "spread", [{0, 16}, {8}])
    assert (chosen.of, chosen.members, chosen.pairs) == (16, (0, 16, 8), {"socket": 1})


def test_hardware_threads_are_used_where_cores_do_not_suffice() -> None:
    numbers = [core.number for core in cores_for(Topology(EPYC), "close", 18, 1)]
    assert len({*numbers}) == 18 and len({EPYC[number].physical for number in numbers}) == 9


def test_where_there_is_too_little_every_choice_is_the_first() -> None:
    for choice in ("first", "close", "spread"):
        assert [core.number for core in cores_for(Topology(cores_of(1, 1, 1, 2)), choice, 3, 1)] == [0, 1, 0]


@pytest.mark.parametrize("choice", ["0,9", "0,1,2", "1"])
def test_a_list_that_does_not_fit(choice: str) -> None:
    for select_them in (lambda: gpus_for(MACHINES["DGX-1, cube mesh"], choice, 2),
                        lambda: cores_for(Topology(cores_of(1, 1, 1, 4)), choice, 2, 1)):  # fmt: skip
        with pytest.raises(PlanError, match=choice):
            select_them()


def test_nothing_is_chosen_where_the_cluster_chooses_or_connections_are_unknown() -> None:
    node = Topology((Core(0), Core(1)), (TopologyGpu("a"), TopologyGpu("b")), of_cluster=True)
    for refused in (lambda: cores_for(node, "spread", 2, 1), lambda: gpus_for(node, "0,1", 2)):
        with pytest.raises(PlanError, match="cluster"):
            refused()
    unknown = linked(3, lambda i, j: "unknown")
    with pytest.raises(PlanError, match="NVML"):
        gpus_for(unknown, "close", 2)
    assert [gpu.uuid for gpu in gpus_for(unknown, "1,0", 2)] == ["GPU-1", "GPU-0"]
    assert len(gpus_for(unknown, "spread", 3)) == 3 and len(gpus_for(unknown, "close", 1)) == 1, "nothing to choose"
    with pytest.raises(PlanError, match="7,8,9"):
        cores_for(Topology(cores_of(1, 1, 1, 2)), "7,8,9", 3, 1)
