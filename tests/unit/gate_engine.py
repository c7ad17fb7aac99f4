"""A fake engine for `collbench gate`: worlds take as long as a test says, and may be interrupted."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.fake_engine import FakeCommand, FakeEngineSession, FakeEngineWorld
from tests.unit.made_worlds import good

from collbench.launch.cells import cases_in
from collbench.launch.engines import fake
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.plan import load_launch_plan, load_plan
from collbench.schema.record import Record, ResultCheck, Samples, summarise

TOML = """
collectives = ["bcast"]
images = ["openmpi"]
policies = ["single", "multi"]
isolation = ["strict"]
sizes = ["8", "64K"]
launches = 8
timeout = "5s"
align = "barrier"
engine = "fake"
"""

#: How long a case takes (us) on a side, by its variables and image, with the noise of its launch (standard normal).
Takes = Callable[[FakeEngineWorld, Case, float], float]

QUIET: Takes = lambda opened, case, noise: 100 + 0.1 * noise  # noqa: E731


def slow(opened: FakeEngineWorld, case: Case, noise: float) -> float:
    """Large messages take half as long again where the variable says so."""
    lost = opened.world.stack.overrides.variables.get("SLOW") == "1" and case["size"] > 8
    return QUIET(opened, case, noise) * (1.5 if lost else 1)


class Engine:
    """Worlds that take as long as is said. `worlds` are all that were opened; one of them may be interrupted."""

    def __init__(self, path: Path) -> None:
        self.path, self.takes, self.worlds = path, QUIET, list[FakeEngineWorld]()
        self.stop_at: int | None = None
        self.more: Callable[[FakeEngineWorld, Case], dict[str, Any]] = lambda opened, case: {}
        self._draw = np.random.default_rng(1)

    def play(self, command: FakeCommand) -> int:
        """One world."""
        if len(self.worlds) == self.stop_at:
            raise KeyboardInterrupt
        opened = command.opened
        self.worlds.append(opened)
        cell, out = command.world.cell, command.world.folders.out
        (out / "samples").mkdir(parents=True)
        chosen = load_plan(command.world.folders.plan).chosen
        cases = [one for asked in cases_in(load_launch_plan(self.path), cell) for one in asked.identities
                 if chosen.measures([one])]  # fmt: skip
        lines = [records.encode(self._record(opened, case)) + b"\n" for case in cases]
        (out / "records.jsonl").write_bytes(b"".join(lines))
        return 0

    def _record(self, opened: FakeEngineWorld, case: Case) -> Record:
        fields = self.more(opened, case)
        if "status" in fields:
            return Record(case=case, launch=0, **fields)
        samples = np.full(2, round(self.takes(opened, case, self._draw.normal()) * 1000))
        name = f"samples/{case['size']}.npy"
        np.save(opened.world.folders.out / name, np.tile(samples, (opened.world.cell.ranks, 1)).astype(np.int32))
        found = Samples(n=2, invalid=0, warmup=0, file=name)
        return good(case, seconds=summarise(samples), samples=found, check=ResultCheck(wrong=0), **fields)

    @property
    def order(self) -> list[tuple[str, str]]:
        """Policy and side of every world that was opened."""
        return [(one.world.cell.policy, one.world.stack.overrides.variables.get("SIDE", "")) for one in self.worlds]


def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine for the plan, which is in the folder that the command runs in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "plan.toml").write_text(TOML)
    made = Engine(tmp_path / "plan.toml")
    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, connect=lambda *_: FakeEngineSession(made.play)))
    return made


SIDES = ("--base", "env=SIDE=a", "--other", "env=SIDE=b")
SLOW = ("--other", "env=SLOW=1")
