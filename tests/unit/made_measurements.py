"""Ranks of the fake backend, each of which does what a test says; single cases, measured on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from numpy.typing import NDArray

from collbench import backends, collectives
from collbench.backends.fake import FakeWorld, Hub, run_ranks
from collbench.bindings.spec import Operation, World, WorldSettings
from collbench.collectives.row import CollectiveCase
from collbench.machine.facts import rank_facts
from collbench.run.failures import Unwatched
from collbench.run.measure import measure
from collbench.run.sampling import Method, StopRule
from collbench.schema.record import Record

Found = TypeVar("Found")

#: Changes what a rank has before it measures: its session.
Change = Callable[[Any], None]


def on_ranks(ranks: int, body: Callable[[Any], Found], fault: str | None = None) -> list[Found]:
    """What `body(session)` gives on each rank."""
    found: dict[int, Found] = {}

    def run(session: Any) -> None:
        found[session.world.rank] = body(session)

    backends.get("fake").run(WorldSettings(ranks=ranks, timeout=60.0, fault=fault), run)
    return [found[rank] for rank in range(ranks)]


def in_world(ranks: int, body: Callable[[World], Found]) -> list[Found]:
    """What `body(world)` gives on each of so many ranks."""
    hub, found = Hub(ranks, 60.0), dict[int, Found]()

    def run(rank: int) -> None:
        found[rank] = body(FakeWorld(hub, rank))

    run_ranks(hub, run, 60.0)
    return [found[rank] for rank in range(ranks)]


def case(name: str = "bcast", ranks: int = 2, **fields: Any) -> CollectiveCase:
    """A case of four float32."""
    row = collectives.get(name)
    usual: dict[str, Any] = {
        "driver": "python", "thread_level": "single", "size": 16, "dtype": "float32",
        "op": "sum" if row.reduces else None, "root": 0 if row.rooted else None,
    }  # fmt: skip
    return CollectiveCase(collective=name, backend="fake", ranks=ranks, **(usual | fields))


def method(ranks: int = 2, **fields: Any) -> Method:
    """Three samples behind a barrier, and no warm-up."""
    usual = Method("barrier", False, "common", StopRule.fixed(3), 0, 1, "isolated", (rank_facts(),) * ranks, False)
    return replace(usual, **fields)


class Heard(Unwatched):
    """A watch that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def beat(self, doing: str) -> None:
        self.said.append(doing)


def measured(
    asked: CollectiveCase, how: Method | None = None, change: Change = lambda session: None, fault: str | None = None,
) -> list[tuple[Record, NDArray[Any] | None]]:  # fmt: skip
    """What `measure` gives on each rank."""

    def body(session: Any) -> tuple[Record, NDArray[Any] | None]:
        change(session)
        row = collectives.get(asked.collective)
        return measure(asked, row, session, how or method(asked.ranks), Unwatched())

    return on_ranks(asked.ranks, body, fault)


def preparing(change: Callable[[int, Operation], Operation]) -> Change:
    """`change(rank, operation)` is what a session prepares."""

    def make(session: Any) -> None:
        prepare = session.prepare
        session.prepare = lambda *what: change(session.world.rank, prepare(*what))

    return make
