"""Readings of yardsticks around a launch, on the cores of its ranks, where these are the driver's own machine's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from collbench import yardsticks
from collbench.launch import engines
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.keeping import LaunchSink, placed
from collbench.launch.placing import Placement
from collbench.machine.facts import format_cores
from collbench.schema.case import Case, Where
from collbench.schema.yardsticks import Moment, YardstickReading


def cores_here(cell: LaunchCell, placement: Placement) -> frozenset[int]:
    """The cores of a cell's ranks on this machine; empty where they are on another one, or not known."""
    if not engines.get(cell.engine).local:
        return frozenset()
    return frozenset(core for slot in placement.slots for core in slot.cores)


@contextlib.contextmanager
def read_around(sink: LaunchSink, launches: tuple[Launch, ...], cores: frozenset[int]) -> Iterator[None]:
    """Read the yardsticks on these cores before and after launches that are performed at the same time.

    A launch that raises has no reading after it.

    Raises:
        Exception: what the sink raises.
    """
    sink.add_reading(_taken(launches, cores, "before"))
    yield
    sink.add_reading(_taken(launches, cores, "after"))


def _taken(launches: tuple[Launch, ...], cores: frozenset[int], moment: Moment) -> YardstickReading:
    readings = yardsticks.take(cores)
    return YardstickReading(
        launch=launches[0].number, sequence=launches[0].sequence,
        cells=tuple(_where(launch.cell) for launch in launches), cores=format_cores(cores), moment=moment,
        monotonic=time.monotonic(), wall=time.time(), values=readings.values, reason=readings.reason,
    )  # fmt: skip


def _where(cell: LaunchCell) -> Where:
    """As the records of the cell have it."""
    return placed(Case(workload="", where=Where(ranks=cell.ranks)), cell).where
