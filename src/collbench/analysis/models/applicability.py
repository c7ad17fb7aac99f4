"""Whether a prediction is allowed: the measurements must reach the point over the same transport and machine."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.models.predict import PredictionQuestion, times_beyond
from collbench.analysis.models.series import NO_LINK, Point, Series
from collbench.analysis.observations import Observed
from collbench.schema.manifest import Host
from collbench.units import counted, format_bytes, format_size

#: Sizes are predicted up to this many times above the largest measured, or below the smallest.
REACH = 16

#: Collectives whose size is one buffer of the root, of which every other rank has a share.
SHARED_OUT = frozenset({"gather", "scatter"})

#: What to do where nothing measured reaches the point.
WHAT_IF = "name a link for a what-if: --link latency=2us,bandwidth=12.5GB/s"


def reaching_series(observed: Observed, kin: Sequence[Series], question: PredictionQuestion) -> Series | str:
    """Of the series of one case over several transports, the one that reaches a point; or why none does."""
    why = _places(observed, kin, question.ranks) or _memory(observed, kin[0], question)
    if why:
        return why
    corners = _corners([(point, series) for series in kin for point in series.points], question)
    names = list(dict.fromkeys(series.transport or "unknown" for _, series in corners))
    if len(names) > 1:
        measured = "; ".join(
            f"{series.transport or 'unknown'} at {point.ranks} ranks"
            + (f" and {format_size(point.size)}" if series.sized else "")
            for point, series in corners
        )
        return (
            f"{question} lies across a change of transport, measured: {measured}. "
            f"Ask for a point within one transport, or {WHAT_IF}"
        )
    if not corners:
        return NO_LINK
    return _reach(corners[0][1], question) or corners[0][1]


def _corners(grid: list[tuple[Point, Series]], question: PredictionQuestion) -> list[tuple[Point, Series]]:
    """The measured cells around a point: the nearest rank counts below and above, and of each the nearest sizes.

    Outside the grid the nearest edge.
    """
    corners = []
    for ranks in _around(sorted({point.ranks for point, _ in grid}), question.ranks):
        row = {point.size: (point, series) for point, series in grid if point.ranks == ranks}
        corners += [row[size] for size in _around(sorted(row), question.size or 0)]
    return corners


def _around(known: Sequence[int], value: int) -> set[int]:
    """The largest number that is at most the value, and the smallest that is at least the value."""
    below = [number for number in known if number <= value]
    above = [number for number in known if number >= value]
    return {*below[-1:], *above[:1]}


def _places(observed: Observed, kin: Sequence[Series], ranks: int) -> str:
    """Why so many ranks need a network that was not measured; empty where they do not."""
    most = max((series.ranks[-1] for series in kin if series.points), default=0)
    machines = [manifest.hosts for manifest in observed.manifests]
    cores = max((sum(host.cores for host in hosts) for hosts in machines), default=0)
    if ranks <= max(most, cores) or any(len(hosts) > 1 for hosts in machines):
        return ""
    names = ", ".join(sorted({host.name for hosts in machines for host in hosts}))
    return (
        f"{ranks} ranks do not fit on the one host measured ({names}, {counted(cores, 'core')}), and no network "
        f"between hosts was measured. Ask for at most {max(most, cores)} ranks, or {WHAT_IF}"
    )


def _memory(observed: Observed, series: Series, question: PredictionQuestion) -> str:
    """Why the buffers of these ranks fit into no machine that was measured; empty where they do, or it is unknown.

    Counts one buffer of each rank, the least that a collective has; where one buffer is shared out among the ranks,
    that one.
    """
    if not series.sized or question.size is None:
        return ""
    machines = [[_usable(host) for host in manifest.hosts] for manifest in observed.manifests]
    memory = max((sum(filter(None, hosts)) for hosts in machines if hosts and None not in hosts), default=None)
    needed = question.size * (1 if series.case.workload in SHARED_OUT else question.ranks)
    if memory is None or needed <= memory:
        return ""
    return (
        f"{question} need at least {format_bytes(needed)} of memory, and the machine measured has "
        f"{format_bytes(memory)}. Ask for less, or {WHAT_IF}"
    )


def _usable(host: Host) -> int | None:
    """Memory of the host and of the GPUs that ranks used on it (bytes); None where it is unknown."""
    known = [size for size in (host.memory, host.cgroup_memory) if size is not None]
    return min(known) + sum(gpu.memory for gpu in host.gpus) if known else None


def _reach(series: Series, question: PredictionQuestion) -> str:
    """Why a size is too far from those measured; empty where it is not."""
    size = question.size or 0
    if times_beyond(series, size) <= REACH:
        return ""
    measured = f"{format_size(series.sizes[0])} to {format_size(series.sizes[-1])}"
    return (
        f"{question} is more than {REACH} times beyond the sizes measured, {measured}, too far to predict. "
        f"Measure nearer sizes, or {WHAT_IF}"
    )
