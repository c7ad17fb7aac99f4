"""What a prediction may stand on: whether what was measured reaches a point over the same transport and machine."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.models.predict import PredictionQuestion, times_beyond
from collbench.analysis.models.series import Point, Series
from collbench.analysis.observations import Observed
from collbench.schema.manifest import Host
from collbench.units import format_bytes, format_size

#: Sizes are predicted up to this many times above the largest measured, or below the smallest.
REACH = 16

#: Collectives in which the size is one buffer of the root, and every other rank has a share of it.
SHARED_OUT = frozenset({"gather", "scatter"})

#: What to do where nothing measured reaches the point.
WHAT_IF = "give a link for a what-if: --link latency=2us,bandwidth=12.5GB/s"


def standing(observed: Observed, kin: Sequence[Series], question: PredictionQuestion) -> Series | str:
    """Of the series of one case over several transports, the one that reaches a point; or why none does."""
    why = _places(observed, kin, question.ranks) or _memory(observed, kin[0], question)
    if why:
        return why
    corners = _corners([(point, one) for one in kin for point in one.points], question)
    names = list(dict.fromkeys(one.transport or "unknown" for _, one in corners))
    if len(names) > 1:
        found = "; ".join(
            f"{one.transport or 'unknown'} at {point.ranks} ranks"
            + (f" and {format_size(point.size)}" if one.sized else "")
            for point, one in corners
        )
        across = f"{question} lies across a change of transport: measured were {found}"
        return f"{across}. Ask within one of them, or {WHAT_IF}"
    if not corners:
        return "nothing was measured that says something of a link"
    return _reach(corners[0][1], question) or corners[0][1]


def _corners(grid: list[tuple[Point, Series]], question: PredictionQuestion) -> list[tuple[Point, Series]]:
    """The measured cells around a point: the nearest rank counts below and above, and of each the nearest sizes.

    Beyond an edge there is only the edge.
    """
    found = {}
    for ranks in _around(sorted({point.ranks for point, _ in grid}), question.ranks):
        row = {point.size: (point, one) for point, one in grid if point.ranks == ranks}
        for size in _around(sorted(row), question.size or 0):
            found[ranks, size] = row[size]
    return list(found.values())


def _around(known: Sequence[int], value: int) -> set[int]:
    """The largest that is at most the value and the smallest that is at least it, as far as there are such."""
    below = [one for one in known if one <= value]
    above = [one for one in known if one >= value]
    return {*below[-1:], *above[:1]}


def _places(observed: Observed, kin: Sequence[Series], ranks: int) -> str:
    """Why this many ranks need a network that was not measured; empty where they do not."""
    most = max((one.ranks[-1] for one in kin if one.points), default=0)
    machines = [manifest.hosts for manifest in observed.manifests]
    cores = max((sum(host.cores for host in hosts) for hosts in machines), default=0)
    if ranks <= max(most, cores) or any(len(hosts) > 1 for hosts in machines):
        return ""
    names = ", ".join(sorted({host.name for hosts in machines for host in hosts}))
    number = "1 core" if cores == 1 else f"{cores} cores"
    return (
        f"{ranks} ranks need more than the one host measured ({names}, {number}): what would lie between hosts was not "
        f"measured. Ask for at most {max(most, cores)} ranks, or {WHAT_IF}"
    )


def _memory(observed: Observed, one: Series, question: PredictionQuestion) -> str:
    """Why the buffers of these ranks fit into no machine that was measured; empty where they do, or it is unknown.

    One buffer of each rank is counted, which every collective has at least; of those that share one buffer out among
    the ranks, that one.
    """
    if not one.sized or question.size is None:
        return ""
    machines = [[_usable(host) for host in manifest.hosts] for manifest in observed.manifests]
    there = max((sum(filter(None, found)) for found in machines if found and None not in found), default=None)
    needed = question.size * (1 if one.case.workload in SHARED_OUT else question.ranks)
    if there is None or needed <= there:
        return ""
    return (
        f"{question} need {format_bytes(needed)} of memory at least, and {format_bytes(there)} were there. "
        f"Ask for less, or {WHAT_IF}"
    )


def _usable(host: Host) -> int | None:
    """Bytes of the host and of the GPUs that ranks used on it; None where the kernel does not tell."""
    known = [size for size in (host.memory, host.cgroup_memory) if size is not None]
    return min(known) + sum(gpu.memory for gpu in host.gpus) if known else None


def _reach(series: Series, question: PredictionQuestion) -> str:
    """Why a size is too far from those measured; empty where it is not."""
    size = question.size or 0
    if times_beyond(series, size) <= REACH:
        return ""
    measured = f"{format_size(series.sizes[0])} to {format_size(series.sizes[-1])}"
    return (
        f"{question} is more than {REACH} times beyond the sizes measured, {measured}: no time there follows from "
        f"these. Measure nearer sizes, or {WHAT_IF}"
    )
