"""`collbench launch --until decided` on the fake engine: worlds that measure what they are asked, in made-up times."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from tests.runs import read_run
from tests.unit.fake_engine import FakeCommand, FakeEngineSession, Play
from tests.unit.made_worlds import good

from collbench.cli import run_command
from collbench.errors import Interrupted
from collbench.launch.cells import LaunchCell, cases_in
from collbench.launch.engines import fake
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.plan import Chosen, Plan, load_launch_plan, load_plan
from collbench.schema.record import Samples, summarise

TOML = """
collectives = ["bcast"]
images = ["openmpi"]
policies = ["single", "multi"]
isolation = ["strict", "files"]
sizes = ["8", "64K"]
launches = 12
until = "decided"
timeout = "5s"
align = "barrier"
engine = "fake"
"""

#: How long a case takes (us) in a place, with the noise of its launch (standard normal).
Takes = Callable[[str, Case, float], float]


@dataclass(frozen=True)
class Played:
    """A launch as its world was told of it: what is executed, in which order."""

    cell: LaunchCell
    sequence: int
    chosen: Chosen
    executed: tuple[Case, ...]


def taking(takes: Takes, plan: Plan, played: list[Played], stop_at: int | None = None, cut: int = 0) -> Play:
    """Launches of which each has its noise; Ctrl-C in one, after so many of its cases."""

    def play(command: FakeCommand) -> int:
        cell, out = command.world.cell, command.world.folders.out
        sequence = int(command.world.name.rpartition("-")[2])
        chosen = load_plan(command.world.folders.plan).chosen
        asked = [case.identities for case in cases_in(plan, cell) if chosen.executes(case.identities)]
        executed = tuple(one for identities in asked for one in identities)
        measured = [case for case in executed if chosen.measures([case])]
        stops = len(played) == stop_at
        draw = np.random.default_rng([1, sequence])
        (out / "samples").mkdir(parents=True)
        lines = []
        for case in measured[:cut] if stops else measured:
            place = f"{cell.policy} {cell.isolation}"
            samples = np.full(2, round(takes(place, case, draw.normal()) * 1000))
            name = f"samples/{case['size']}.npy"
            np.save(out / name, np.tile(samples, (cell.ranks, 1)).astype(np.int32))
            found = Samples(n=2, invalid=0, warmup=0, file=name)
            lines.append(records.encode(good(case, seconds=summarise(samples), samples=found)) + b"\n")
        (out / "records.jsonl").write_bytes(b"".join(lines))
        if stops:
            raise Interrupted("interrupted.") if cut else KeyboardInterrupt
        played.append(Played(cell, sequence, chosen, executed))
        return 0

    return play


@dataclass
class Launch:
    """`launch(takes, *flags, toml=, stop_at=, cut=, without_plan=)`: exit code and standard error, in this process."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    played: list[Played] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "tmp").mkdir()
        self.monkeypatch.setattr(tempfile, "tempdir", str(self.folder / "tmp"))

    def __call__(
        self, takes: Takes, *flags: str, toml: str = TOML, stop_at: int | None = None, cut: int = 0,
        without_plan: bool = False,
    ) -> tuple[int, str]:  # fmt: skip
        (self.folder / "plan.toml").write_text(toml)
        self.played.clear()
        plan = load_launch_plan(self.folder / "plan.toml")
        session = FakeEngineSession(taking(takes, plan, self.played, stop_at, cut))
        self.monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, connect=lambda *_: session))
        where = () if "--resume" in flags else ("--out", str(self.folder / "run"))
        plans = () if without_plan else (str(self.folder / "plan.toml"),)
        words = ("launch", *plans, *where, *flags)
        self.monkeypatch.setattr(sys, "argv", ["collbench", *words])
        code = run_command(speaks=True)
        return code, self.capsys.readouterr().err


def launches_of(run: Path) -> dict[str, int]:
    """How often each place was launched."""
    found = {(one.case.where.text, one.launch) for one in read_run(run).records}
    return {place: sum(name == place for name, _ in found) for place in sorted({name for name, _ in found})}


def clear(place: str, case: Case, noise: float) -> float:
    """Half as long again in `multi` without isolation, which is alone in taking so long."""
    return 1000.0 * (1.5 if place == "multi files" else 1.0) * (1 + 0.001 * noise)


def noisy(place: str, case: Case, noise: float) -> float:
    """A tenth more in multi strict, where launches differ by 5 %: nobody can say so soon."""
    return float(1000.0 * np.exp(noise * 0.05 + 0.1 if place == "multi strict" else noise * 0.001))
