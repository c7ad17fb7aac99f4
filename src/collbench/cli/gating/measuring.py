"""Both sides of a gate, measured in turns: in each block every cell once, both of its sides one after the other."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import click
from numpy.typing import NDArray

from collbench.cli.terminal import harmless
from collbench.launch.campaign import PreparedCampaign, cleaned, finished, perform
from collbench.launch.cells import Launch
from collbench.launch.stopping import StopCheck
from collbench.schema.gate_plan import SIDES
from collbench.schema.record import Record
from collbench.schema.store import RunWriter

#: Numbers of the cells that are launched in a block; None for all.
Wanted = Callable[[int], Collection[int] | None]


class Progress:
    """A bar of launches on a terminal, and lines beside it."""

    def __init__(self, launches: int) -> None:
        from tqdm import tqdm

        self.bar: Any = tqdm(total=launches, unit="launch", file=sys.stderr, leave=False, dynamic_ncols=True,
                             disable=not sys.stderr.isatty())  # fmt: skip

    def say(self, line: str, left: int | None = None) -> None:
        """A line; so many launches may still come."""
        if left is not None:
            self.bar.total = self.bar.n + left
        self.bar.clear()
        click.echo(harmless(line), err=True)


class MeasuredSide:
    """A side with its run. `records` are those of the run before, and those that come."""

    def __init__(self, name: str, prepared: PreparedCampaign, writer: RunWriter, progress: Progress) -> None:
        self.name, self.prepared, self.writer, self.progress = name, prepared, writer, progress
        self.records = list(writer.before)
        self.done = finished(prepared.expanded, writer.before)
        self.problems: dict[str, str] = {}  # by what was said of a launch, the first of which it was said
        self.known = frozenset((record.case, record.launch) for record in writer.before if not record.lost)

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        """Write a record."""
        self.records.append(self.writer.append(record, samples))

    def launched(self, launch: Launch, problem: str | None) -> None:
        """A launch is over; a problem is printed, unless an earlier launch had the same, which is named then."""
        self.progress.bar.set_description(f"{self.name}: {launch.cell.title}", refresh=False)
        if problem is not None:
            title = f"launch {launch.number} ({launch.cell.title})"
            first = self.problems.setdefault(problem, title)
            self.progress.say(
                f"collbench: {self.name}: {title} {problem if first == title else f'ended as {first} did'}"
            )


class Turn(NamedTuple):
    """A launch of one side. `cell` and `side` are numbers; `sequence` is its place among all, from 0."""

    block: int
    cell: int
    side: int
    sequence: int


def turns(cells: int, launches: int, seed: int) -> Iterator[tuple[Turn, ...]]:
    """Blocks of launches: cells in a random order, and in each cell the sides in a random order, by the seed."""
    for block in range(launches):
        generator = random.Random(f"{seed}/{block}")  # noqa: S311 - an order, no secret
        order = [(cell, side) for cell in generator.sample(range(cells), cells)
                 for side in generator.sample(range(len(SIDES)), len(SIDES))]  # fmt: skip
        first = block * cells * len(SIDES)
        yield tuple(Turn(block, cell, side, first + place) for place, (cell, side) in enumerate(order))


def measure(
    sides: tuple[MeasuredSide, MeasuredSide], seed: int, check: StopCheck, wanted: Wanted, go_on: Callable[[], bool]
) -> None:
    """Perform every launch of both sides that is not done. After each block `go_on` says whether another makes sense.

    Raises:
        Interrupted: told to stop; both runs are kept as they are.
        EngineError: an engine went away and did not come back.
    """
    expanded = [side.prepared.expanded for side in sides]
    with cleaned({**sides[0].prepared.sessions, **sides[1].prepared.sessions}):
        for block in turns(len(expanded[0].cells), expanded[0].plan.launches, seed):
            cells = wanted(block[0].block)
            if cells is not None and not cells:
                return
            for turn in block:
                side, cell = sides[turn.side], expanded[turn.side].cells[turn.cell]
                if (cell, turn.block) not in side.done and (cells is None or turn.cell in cells):
                    perform(side.prepared, Launch(cell, turn.block, turn.sequence), side, side.known, check)
                    side.progress.bar.update()
            if not go_on():
                return
