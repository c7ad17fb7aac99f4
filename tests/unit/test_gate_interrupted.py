"""`collbench gate` that is interrupted: it says so, judges what it has, and goes on; folders that it cannot use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.gate_engine import SIDES, SLOW, Engine, connected, slow

from collbench.cli.gating.writing import FILES
from collbench.schema.store import read_run


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The plan is in its folder."""
    return connected(tmp_path, monkeypatch)


def test_ctrl_c_leaves_what_resume_goes_on_with(engine: Engine, here: Collbench) -> None:
    engine.stop_at = 21
    stopped = here("gate", "plan.toml", *SIDES, "--out", "kept")
    assert stopped.code == 4
    assert "continue: --resume kept" in stopped.err
    first = "gate: incomplete: interrupted after 5 of 8 blocks; --resume kept goes on; 4 of 4 cells not answered"
    assert stopped.out.startswith(first)
    early = here("gate", "kept")
    assert (early.code, early.out) == (4, stopped.out)
    assert {
        name: "interrupted after 5 of 8 blocks" in Path("kept", name).read_text() for name in FILES
    } == dict.fromkeys(FILES, True)
    engine.stop_at = 24
    again = here("gate", "plan.toml", *SIDES, "--resume", "kept")
    assert (again.code, "interrupted after 6 of 8 blocks" in again.out) == (4, True)
    engine.stop_at = None
    ended = here("gate", "plan.toml", *SIDES, "--resume", "kept")
    assert (ended.code, "interrupted" in ended.out) == (0, False)
    assert json.loads(Path("kept/gate.json").read_text())["unfinished"] is None
    assert len(engine.worlds) == 32
    launches = [record.launch for record in read_run(Path("kept/base")).records]
    assert sorted(launches) == [number for number in range(8) for _ in range(4)]


def test_an_interrupted_gate_passes_and_loses_nothing(engine: Engine, here: Collbench) -> None:
    """Fewer launches than were planned are looked at too early; until decided, others may still differ."""
    engine.takes, engine.stop_at = slow, 28
    found = here("gate", "plan.toml", *SLOW, "--launches", "40", "--until", "decided", "--out", "kept")
    assert found.code == 4
    assert found.out.startswith("gate: incomplete: interrupted after 7 of at most 40 blocks; --resume kept goes on; ")
    engine.worlds.clear()
    engine.stop_at = 30
    lost = here("gate", "plan.toml", *SLOW, "--out", "fixed")
    assert (lost.code, "; 2 losses so far: " in lost.out.splitlines()[0]) == (4, True), lost.out


def test_what_is_interrupted_before_both_runs_have_begun_has_no_answer(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collbench.cli.gating.sides.prepare_expanded", stopped)
    found = here("gate", "plan.toml", *SIDES, "--out", "kept")
    assert (found.code, found.out) == (130, "")


def test_an_interruption_before_anything_is_launched_again_is_no_answer_of_the_gate_before(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("gate", "plan.toml", *SIDES, "--out", "kept").code == 0

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collbench.cli.gating.sides.prepare_expanded", stopped)
    found = here("gate", "plan.toml", *SIDES, "--resume", "kept")
    assert (found.code, found.out) == (130, "")


@pytest.mark.parametrize("out", ["/proc/none/x", "plan.toml/x"])
def test_a_folder_that_cannot_be_made_is_a_wrong_request(engine: Engine, here: Collbench, out: str) -> None:
    found = here("gate", "plan.toml", "--out", out)
    assert (found.code, engine.worlds) == (2, [])
    assert f"--out {out}: " in found.err and "Nothing was measured. Name another folder" in found.err
