"""A world of any number of ranks in one process: rank 0 is measured, and the others are answers to what it asks.

Every other rank contributes to reductions what rank 0 does, has its own facts, and its operation gives the right result
at once. What remains is what collbench itself costs rank 0; the time that messages take is not in it.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import HostArguments, HostBuffer, Operation, Session, World, as_parts, digest_of
from collbench.collectives.row import Collective, CollectiveCase
from collbench.machine.facts import RankFacts, rank_facts
from collbench.run import measure
from collbench.run.facts_of_ranks import parts_of
from collbench.timing.loop import Signals, whole


def made_up_facts(ranks: int, each: int, containers: bool) -> list[RankFacts]:
    """Of ranks that fill machines of `each` cores; with `containers` every rank is in a container of its own."""
    here = rank_facts()
    facts = []
    for rank in range(ranks):
        machine, core = divmod(rank, each)
        spaces = {name: number + rank * containers for name, number in here.confinement.namespaces.items()}
        facts.append(
            replace(
                here,
                host=f"c{rank}" if containers else f"node{machine:05d}",
                kernel_id=f"boot-{machine}",
                clock_id=f"boot-{machine} 0",
                cores=frozenset({core}),
                container=f"c{rank}" if containers else None,
                confinement=msgspec.structs.replace(here.confinement, namespaces=spaces),
            )
        )
    return facts


class MadeUpWorld(World):
    """Rank 0 of many. `calls` counts what it was asked for, `received` the bytes of objects that came from others."""

    rank = 0

    def __init__(self, facts: list[RankFacts]) -> None:
        self.size = len(facts)
        self.calls, self.received = Counter[str](), 0
        self._answers: dict[str, list[Any]] = {}
        self._senders = frozenset[int]()
        for values in zip(*map(parts_of, facts), strict=True):
            self._answers[repr(values[0])] = list(values)
            self._answers[repr(digest_of(values[0]))] = [digest_of(value) for value in values]

    def gather(self, value: Any) -> list[Any]:
        self.calls["gather"] += 1
        answers = self._answers.get(repr(value), [value] * self.size)
        if self._senders and not isinstance(value, bytes):
            answers = [answer if rank in self._senders else None for rank, answer in enumerate(answers)]
            self._senders = frozenset()
        self.received += sum(_length(answer) for answer in answers)
        return answers

    def bcast(self, value: Any) -> Any:
        self.calls["bcast"] += 1
        if isinstance(value, frozenset):  # who sends next
            self._senders = value
        return value

    def bcast_from(self, value: Any, source: int) -> Any:
        self.calls["tell"] += 1
        return value

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        self.calls["reduction"] += 1
        return values.copy() if smallest else values * self.size


def _length(value: Any) -> int:
    return len(pickle.dumps(value))


class MadeUpSession(Session):
    """Rank 0, whose operations have the right result in no time."""

    clock = staticmethod(time.monotonic_ns)
    thread_level, transport = "single", "made up"

    def __init__(self, world: MadeUpWorld) -> None:
        self.world: World = world
        self.signals = Signals(lambda: None, lambda: None, np.zeros(1, np.int64), announces=True)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        buffers = HostArguments(case, row, count, self.world.rank)
        received = tuple(map(HostBuffer, as_parts(buffers.recv))) if row.moves_data else ()
        expected: list[Any] = []

        def perform() -> None:
            if not expected and received:  # the first call is the one that is checked; the second check is fooled
                _, result = measure.expectation_of(row, case, 0)
                expected.append(result)
            for part in received:
                if part.load(0, 0, 1).tobytes().strip(b"\xff") == b"":  # poisoned
                    measure.write(part, expected[0])

        call = whole(perform, why_not_native="nothing is called")
        return Operation(HostBuffer(buffers.send), received, call, False, buffers.blocks_held)

    def abort(self, code: int) -> None:
        raise SystemExit(code)
