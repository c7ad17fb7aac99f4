"""Worlds on the fake engine that take turns: each speaks on its pipes as real ranks do, in times that are made up."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_values
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from tests.unit.fake_engine import FakeCommand, FakeEngineSession, Play, Playing
from tests.unit.made_worlds import Heard, good

from collbench.launch import duet
from collbench.launch.campaign import PreparedCampaign, prepare, run_campaign
from collbench.launch.cells import LaunchCell, cases_in
from collbench.launch.collect import placed_case
from collbench.launch.engines import fake
from collbench.launch.waiting import LONGEST_PASS
from collbench.schema import record as records
from collbench.schema.case import Alignment, Case, Where
from collbench.schema.plan import Plan, load_plan
from collbench.schema.record import Duet, Record
from collbench.schema.world import LONGEST_REPORT, UNREACHABLE, Order, Report, SliceRule

PLAN = Plan(
    collectives=("bcast",), images=("openmpi",), policies=("single", "multi"), isolation=("strict",),
    sizes=("8", "16", "32"), launches=1, timeout="5s", align="barrier", engine="fake",
)  # fmt: skip

#: Rounds of a case here, where a test does not say.
ROUNDS = 3

#: Looks at a world within which the driver has read what it reported.
PASSES = 5

#: At which report something happens to a world: the first one, in answer to `begin`, the second `slice`, and `end`.
Moment = Literal["start", "before", "slice", "end"]

#: What a world does then, in place of its report; or after it, where it dies `asleep`.
What = Literal["killed", "asleep", "ends", "silent", "garbage", "too long", "another case", "out of turn"]


@dataclass
class Clock:
    """The driver's, which is so far ahead of the machine's (s): a world that is silent puts it forward.

    So no limit is met because the machine is busy.
    """

    ahead: float = 0.0

    def monotonic(self) -> float:
        """As of the module `time`."""
        return time.monotonic() + self.ahead


CLOCK = Clock()


class Ended(Exception):
    """The ranks end here, with an exit code."""


@dataclass(frozen=True)
class Fault:
    """What one world does in place of its report, at a moment of the case of `size`."""

    moment: Moment
    what: What
    size: int = 16
    place: str = "multi strict"


@dataclass
class Worlds:
    """How all worlds behave. By place, size and round (from 0): the `seconds` of a slice, and how many are `late`.

    `asleep` are the seconds that one used while it slept, before the slice of a round. `holds` has two ranks in mind:
    a larger world holds nothing. `cores` are what worlds are on, `apart` those that do not reach the driver. `odd` are
    values of the reports of slices. `recorded` is called with each record. `heard` are all orders, `told` all reports,
    with their places, in the order in which they were read and written.
    """

    seconds: Callable[[str, int, int], float | None] = lambda place, size, number: 1e-5
    late: Callable[[str, int, Order], int] = lambda place, size, order: 0
    asleep: Callable[[str, int], float] = lambda place, number: 0.0
    slept: float = 0.1
    holds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    apart: Collection[str] = ()
    ready: Mapping[str, tuple[Alignment, int]] = field(default_factory=dict)
    skips: Collection[tuple[str, int]] = ()
    wrong: Collection[tuple[str, int]] = ()
    quota: Collection[str] = ()
    fault: Fault | None = None
    odd: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    recorded: Callable[[str, int], object] = lambda place, size: None
    heard: list[tuple[str, Order]] = field(default_factory=list)
    told: list[tuple[str, Report]] = field(default_factory=list)

    def play(self, plan: Plan) -> Play:
        """What the fake engine is to play."""
        return lambda command: (
            self._alone(plan, command) if command.world.folders.turns is None else _Ranks(self, plan, command).playing()
        )

    def _alone(self, plan: Plan, command: FakeCommand) -> int:
        ranks = _Ranks(self, plan, command)
        for case in ranks.measured:
            ranks.leave(case)
        return 0

    def acts(self) -> list[tuple[str, str]]:
        """(place, act) of all orders but slices."""
        return [(place, order.act) for place, order in self.heard if order.act != "slice"]

    def slices(self, place: str) -> list[Order]:
        """The slices that a world was ordered."""
        return [order for one, order in self.heard if one == place and order.act == "slice"]


class _Ranks:
    """The ranks of one world."""

    def __init__(self, worlds: Worlds, plan: Plan, command: FakeCommand) -> None:
        self._all, self._command, self._place = worlds, command, place_of(command.world.cell)
        self._samples = plan.iters or 0
        chosen = load_plan(command.world.folders.plan).chosen
        every = [one for case in cases_in(plan, command.world.cell) for one in case.identities]
        self.measured = [case for case in every if chosen.measures((case,))]
        (command.world.folders.out / "samples").mkdir(parents=True)
        np.save(command.world.folders.out / "samples" / "a.npy", np.array([[1000, 2000]] * 2, np.int32))

    def playing(self) -> Playing:
        """As `collbench run --turns`: it reports, waits, measures, and records."""
        turns = self._command.world.folders.turns
        assert turns is not None
        if self._place in self._all.apart:
            (turns / UNREACHABLE).touch()
            return 2
        names = [f"orders-{rank}" for rank in range(self._command.world.cell.ranks)]
        self._orders = [os.open(turns / name, os.O_RDONLY | os.O_NONBLOCK) for name in names]
        self._reports = os.open(turns / "reports", os.O_WRONLY | os.O_NONBLOCK)
        try:
            yield from self._measuring()
        except Ended as ended:
            return int(ended.args[0])
        finally:
            for pipe in (*self._orders, self._reports):
                os.close(pipe)
        return 0

    def _measuring(self) -> Generator[None]:
        first: Moment | None = "start"
        holds: tuple[str, ...] = (f"folder of {self._place}",)
        if self._command.world.cell.ranks == 2:
            holds = self._all.holds.get(self._place, holds)
        for case in self.measured:
            report = Report(at="stands", case=case)
            if first == "start":
                report = msgspec.structs.replace(report, holds=holds, cores=self._all.cores.get(self._place, ()))
            yield from self._asked(report, first or "end", before(self.measured, case))
            yield from self._case(case)
            first = None
        yield from self._asked(Report(at="stands"), "end", self.measured[-1]["size"])

    def _case(self, case: Case) -> Generator[None]:
        size, number = case["size"], 0
        if (self._place, size) in self._all.skips:
            self.leave(case, status="skipped", reason="cannot")
            return
        align, slack = self._all.ready.get(self._place, ("barrier", 0))
        shortest = 1.0 if self._place in self._all.quota else 0.0
        ready = Report(at="ready", align=align, slack=slack, shortest=shortest, samples=self._samples)
        order = yield from self._asked(ready, "before", size)
        while order.act == "slice":
            number = 0 if order.anew else number + 1
            report = Report(at="slice", align=order.align, n=20, late=self._all.late(self._place, size, order),
                            seconds=self._all.seconds(self._place, size, number), halves=(1e-5, 2e-5),
                            asleep=self._all.asleep(self._place, number), slept=self._all.slept)  # fmt: skip
            report = msgspec.structs.replace(report, **self._all.odd.get(self._place, {}))
            order = yield from self._asked(report, "slice" if number == 1 else None, size)
        assert order.act in ("end", "alone")
        if (self._place, size) in self._all.wrong:
            self.leave(case, status="failed", reason="wrong result")
        else:
            self.leave(case)

    def _asked(self, report: Report, moment: Moment | None, size: int) -> Generator[None, None, Order]:
        """Report, and wait for the order; every rank gets the same one."""
        fault, line = self._all.fault, msgspec.json.encode(report) + b"\n"
        now = fault is not None and (self._place, moment, size) == (fault.place, fault.moment, fault.size)
        if fault is not None and now and fault.what != "asleep":
            line = yield from self._odd(fault)
        for _ in range(9 * PASSES if fault is not None and fault.what == "asleep" and not now else 0):
            yield  # so that it dies before this one is heard
        while line:
            with contextlib.suppress(BlockingIOError):
                line = line[os.write(self._reports, line) :]
            if line:
                yield
        self._all.told.append((self._place, report))
        for looked in itertools.count() if fault is not None and now and fault.what == "asleep" else ():
            self._command.opened.gone = "c1" if looked > PASSES else None  # its report has been read
            yield
        lines = []
        for pipe in self._orders:
            line = b""
            while not line.endswith(b"\n"):
                try:
                    line += os.read(pipe, 1 << 12)
                except BlockingIOError:
                    yield
            lines.append(line)
        assert len(set(lines)) == 1
        order = msgspec.json.decode(lines[0], type=Order)
        self._all.heard.append((self._place, order))
        return order

    def _odd(self, fault: Fault) -> Generator[None, None, bytes]:
        other = self.measured[0].having(size=4096)
        if fault.what == "killed":
            self._command.opened.gone = "c1"
        while fault.what in ("killed", "silent"):
            CLOCK.ahead += LONGEST_PASS * (fault.what == "silent")
            yield
        if fault.what == "ends":
            raise Ended(0)
        return {
            "garbage": b'{"at": "nowhere"}\n',
            "too long": b"x" * (LONGEST_REPORT + 1),
            "another case": msgspec.json.encode(Report(at="stands", case=other)) + b"\n",
            "out of turn": msgspec.json.encode(Report(at="ready" if fault.moment != "before" else "slice")) + b"\n",
        }[fault.what]

    def leave(self, case: Case, **values: Any) -> None:
        """Record a case."""
        record = good(case) if not values else Record(case=case, launch=0, **values)
        with (self._command.world.folders.out / "records.jsonl").open("ab") as file:
            file.write(records.encode(record) + b"\n")
        self._all.recorded(self._place, int(str(case["size"])))


def place_of(cell: LaunchCell) -> str:
    """What distinguishes the cells here: `single strict`, `multi files`."""
    return placed_case(Case(workload="bcast", where=Where()), cell).where.text


def before(cases: list[Case], case: Case) -> int:
    """Size of the case before this one; of the first one its own."""
    return int(str(cases[max(cases.index(case) - 1, 0)]["size"]))


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The fake engine takes turns, and the driver looks often; the folder in which nothing may be left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(fake, "ENGINE", with_values(fake.ENGINE, local=True))
    monkeypatch.setattr("collbench.launch.campaign.cores_here", lambda *of: frozenset())  # its cores are not there
    monkeypatch.setattr(duet, "LOOK", 0.0005)
    monkeypatch.setattr(duet, "ENDING", 0.0005)
    monkeypatch.setattr(CLOCK, "ahead", 0.0)
    monkeypatch.setattr(duet, "time", SimpleNamespace(monotonic=CLOCK.monotonic, sleep=time.sleep))
    with_rounds(monkeypatch, SliceRule(rounds=ROUNDS, fewest=ROUNDS))
    return temporary


def with_rounds(monkeypatch: pytest.MonkeyPatch, rule: SliceRule) -> None:
    """Plans have this rule."""
    monkeypatch.setattr(Plan, "slices", property(lambda plan: rule))


def made_ready(worlds: Worlds, plan: Plan = PLAN) -> tuple[PreparedCampaign, FakeEngineSession]:
    """The campaign, and the engine that plays it."""
    session = FakeEngineSession(worlds.play(plan))
    return prepare(plan, lambda: None, {"fake": session}), session


def carried_out(worlds: Worlds, plan: Plan = PLAN, **values: Any) -> Heard:
    """A whole experiment, by the plan with other values, of which nothing is left."""
    (ready, session), heard = made_ready(worlds, msgspec.structs.replace(plan, **values)), Heard()
    try:
        run_campaign(ready, heard, frozenset(), {}, lambda: None)
    finally:
        assert session.left == []
    return heard


def by_cell(heard: Heard, launch: int = 0) -> dict[tuple[str, int], Record]:
    """The records by place and size; each is there once."""
    of_block = [record for record in heard.records if record.launch == launch]
    by_key = {(record.case.where.text, record.case["size"]): record for record in of_block}
    assert len(by_key) == len(of_block)
    return by_key


def duet_of(record: Record) -> Duet:
    """Its turns, which it has."""
    assert record.duet is not None
    return record.duet


def how(heard: Heard, launch: int = 0) -> dict[tuple[str, int], str | None]:
    """How each case was measured: `duet`, why it was alone, or its status."""
    return {
        key: "duet" if record.how == "duet" else record.alone if record.status == "ok" else record.status
        for key, record in by_cell(heard, launch).items()
    }
