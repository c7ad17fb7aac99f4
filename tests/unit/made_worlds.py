"""Launches on the host whose mpirun is a script of ours: it leaves what it likes where ranks leave their records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.launch import launchers
from collbench.launch.campaign import Known, PreparedCampaign, run_campaign
from collbench.launch.cells import Launch
from collbench.launch.engines.host import HostSession
from collbench.launch.engines.spec import Stack
from collbench.launch.expansion import expand
from collbench.launch.stacks import Stacks
from collbench.launch.waiting import StopCheck
from collbench.machine.facts import Core, Topology
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from collbench.schema.record import Record, Samples, Work, summarise
from collbench.schema.store import YardstickReading

PLAN = Plan(
    collectives=("bcast",), images=("openmpi",), policies=("host",), sizes=("8", "16"), launches=2, timeout="5s",
    align="barrier",
)  # fmt: skip

#: The arguments are read, `good` leaves a whole run, and `first` is true in the first launch alone.
SCRIPT = """#!/bin/sh
here={here}
while [ "$1" != --out ]; do shift; done
out=$2
good() {{ cp -r "$here/good/." "$out"; }}
first() {{ mkdir "$here/begun" 2>/dev/null; }}
{body}
"""


@dataclass
class Heard:
    """A sink that remembers."""

    records: list[Record] = field(default_factory=list)
    said: list[str | None] = field(default_factory=list)
    readings: list[YardstickReading] = field(default_factory=list)

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        records.decode(records.encode(record))  # as on its way to disk and back
        self.records.append(record)

    def add_reading(self, reading: YardstickReading) -> None:
        self.readings.append(reading)

    def launched(self, launch: Launch, said: str | None) -> None:
        self.said.append(said)

    @property
    def found(self) -> list[tuple[int, int, str]]:
        """(launch, bytes, status) of every record, in order."""
        return [(record.launch, record.case["size"], record.status) for record in self.records]


def made(place_for_it: Path, body: str, plan: Plan = PLAN) -> PreparedCampaign:
    """A plan for the host, beside an environment whose mpirun executes `body`."""
    expanded = expand(plan, lambda engine: Topology(tuple(Core(n) for n in range(4))))
    asked = tuple(one for case in expanded.cases[expanded.cells[0]] for one in case.identities)
    programs = place_for_it / "environment" / "bin"
    programs.mkdir(parents=True)
    (programs / "mpirun").write_text(SCRIPT.format(here=place_for_it, body=body))
    (programs / "mpirun").chmod(0o755)
    leave_good(place_for_it / "good", asked)
    stack = Stack(launchers.get("openmpi", "openmpi"), str(place_for_it / "environment"))
    sessions = {"host": HostSession(lambda: None)}
    return PreparedCampaign(expanded, sessions, Stacks({("host", "openmpi", None): stack}, (), (), ()))


def leave_good(folder: Path, asked: tuple[Case, ...]) -> None:
    """A run of these cases with two samples each."""
    (folder / "samples").mkdir(parents=True)
    np.save(folder / "samples" / "a.npy", np.array([[1000, 2000]] * asked[0].where.ranks, np.int32))
    (folder / "records.jsonl").write_bytes(b"".join(records.encode(good(case)) + b"\n" for case in asked))


def good(case: Case, **more: Any) -> Record:
    """A record of a case as a world writes it."""
    blank = Record(
        case=case, launch=0, status="ok", work=Work(amount=case["size"], count=case["size"], bus_factor=1.0),
        samples=Samples(n=2, invalid=0, warmup=0, file="samples/a.npy"),
        seconds=summarise(np.array([1000, 2000])),
    )  # fmt: skip
    return msgspec.structs.replace(blank, **more)


def carried_out(
    prepared: PreparedCampaign, check: StopCheck = lambda: None, known: Known = MappingProxyType({})
) -> Heard:
    """The experiment."""
    heard = Heard()
    run_campaign(prepared, heard, frozenset(), known, check)
    return heard
