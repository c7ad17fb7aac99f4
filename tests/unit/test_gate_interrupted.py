"""`collbench gate` that is interrupted: it says so, judges what it has, and goes on; folders that it cannot use."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.gate_engine import SIDES, SLOW, Engine, connected, slow

from collbench.analysis.deciding import PairStatus, standing_of_sides
from collbench.analysis.results import Cell
from collbench.cli.gate import FILES
from collbench.schema.store import Margin, Margins, read_run
from collbench.timing import _loop


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The plan is in its folder."""
    return connected(tmp_path, monkeypatch)


def test_ctrl_c_leaves_what_resume_goes_on_with(engine: Engine, here: Collbench) -> None:
    engine.stop_at = 21
    stopped = here("gate", "plan.toml", *SIDES, "--out", "kept")
    assert stopped.code == 4
    assert "42 records are in kept; continue: collbench gate plan.toml --resume kept --base env=SIDE=a " in stopped.err
    told = json.loads(Path("kept/gate.json").read_text())["unfinished"]
    assert told == {"blocks": 5, "most": 8, "until_decided": False}
    early = here("gate", "kept")
    assert (early.code, early.out) == (4, stopped.out)
    assert {name: "interrupted" in Path("kept", name).read_text() for name in FILES} == dict.fromkeys(FILES, True)
    engine.stop_at = 24
    again = here("gate", "plan.toml", *SIDES, "--resume", "kept")
    assert (again.code, json.loads(Path("kept/gate.json").read_text())["unfinished"]["blocks"]) == (4, 6)
    engine.stop_at = None
    ended = here("gate", "plan.toml", *SIDES, "--resume", "kept")
    assert (ended.code, "interrupted" in ended.out) == (0, False)
    assert json.loads(Path("kept/gate.json").read_text())["unfinished"] is None
    assert len(engine.worlds) == 32
    launches = [record.launch for record in read_run(Path("kept")).records]
    assert sorted(launches) == [number for number in range(8) for _ in range(8)]


def test_an_interrupted_gate_passes_and_loses_nothing(engine: Engine, here: Collbench) -> None:
    """Fewer launches than were planned are looked at too early; until decided, others may still differ."""
    engine.takes, engine.stop_at = slow, 28
    found = here("gate", "plan.toml", *SLOW, "--launches", "40", "--until", "decided", "--out", "kept")
    assert found.code == 4
    told = json.loads(Path("kept/gate.json").read_text())
    assert told["unfinished"] == {"blocks": 6, "most": 40, "until_decided": True}
    assert "at most 160 starts, " in found.err.splitlines()[0]
    engine.worlds.clear()
    engine.stop_at = 30
    lost = here("gate", "plan.toml", *SLOW, "--out", "fixed")
    assert (lost.code, json.loads(Path("fixed/gate.json").read_text())["lost"]) == (4, 2), lost.out


def test_what_is_interrupted_before_both_runs_have_begun_has_no_answer(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collbench.cli.launch.prepare", stopped)
    found = here("gate", "plan.toml", *SIDES, "--out", "kept")
    assert (found.code, found.out) == (130, "")


def test_a_gate_is_resumed_and_judged_as_it_was_begun_where_no_flag_says_otherwise(
    engine: Engine, here: Collbench
) -> None:
    engine.takes, engine.stop_at = slow, 9
    assert here("gate", "plan.toml", *SLOW, "--launches", "6", "--margin", "60%", "--out", "kept").code == 4
    engine.stop_at = None
    assert here("gate", "plan.toml", "--resume", "kept").code == 0
    assert len(engine.worlds) == 6 * 4
    assert here("gate", "kept").code == 0
    assert json.loads(Path("kept/gate.json").read_text())["margins"] == [{"share": 0.6}]
    assert here("gate", "kept", "--margin", "2%").code == 1


def test_a_gate_that_is_resumed_decides_and_accepts_as_it_was_begun(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half as long again is a loss by the default margin; within 60 % it is none."""
    decided: list[Margins] = []

    def recording(cells: list[Cell], blocks: int, most: int, margins: Margins) -> list[PairStatus]:
        decided.append(margins)
        return standing_of_sides(cells, blocks, most, margins)

    monkeypatch.setattr("collbench.cli.gate.standing_of_sides", recording)
    engine.takes, engine.stop_at = slow, 20
    until = ("--launches", "12", "--until", "decided")
    assert here("gate", "plan.toml", *SLOW, *until, "--margin", "60%", "--accept", "late", "--out", "kept").code == 4
    engine.stop_at = None
    ended = here("gate", "plan.toml", "--resume", "kept")
    answer = json.loads(Path("kept/gate.json").read_text())
    found = (ended.code, answer["margins"], answer["accepted"], set(decided))
    assert found == (0, [{"share": 0.6}], ["late"], {(Margin(0.6),)}), ended


def test_what_is_decided_by_the_margin_of_the_gate_starts_no_more_launches(engine: Engine, here: Collbench) -> None:
    """By the default margin it would be open."""
    engine.takes = lambda opened, case, noise: 100 + 5 * noise
    assert here("gate", "plan.toml", *SIDES, "--margin", "60%", "--out", "kept").code == 0
    worlds = len(engine.worlds)
    more = ("--until", "decided", "--launches", "16")
    ended = here("gate", "plan.toml", *more, "--resume", "kept")
    assert (ended.code, len(engine.worlds), "nothing is started" in ended.err) == (0, worlds, True), ended
    assert here("gate", "plan.toml", *more, "--resume", "kept", "--margin", "2%").code == 4
    assert len(engine.worlds) > worlds


def test_a_plan_with_sides_of_its_own_is_refused(engine: Engine, here: Collbench) -> None:
    engine.path.write_text(engine.path.read_text() + "[sides.a]\n[sides.b]\n")
    found = here("gate", "plan.toml")
    assert (found.code, engine.worlds, "--by side" in found.err) == (2, [], True)


def test_a_gate_that_has_ended_is_judged_again_when_it_is_resumed(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("gate", "plan.toml", *SIDES, "--out", "kept").code == 0

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collbench.cli.launch.prepare", stopped)
    found = here("gate", "plan.toml", *SIDES, "--resume", "kept")
    assert (found.code, "every launch of this plan is recorded" in found.err) == (0, True)


@pytest.mark.parametrize("out", ["/proc/none/x", "plan.toml/x"])
def test_a_folder_that_cannot_be_made_is_a_wrong_request(engine: Engine, here: Collbench, out: str) -> None:
    found = here("gate", "plan.toml", "--out", out)
    assert (found.code, engine.worlds) == (2, [])
    assert "Name another folder: --out" in found.err


def test_the_command_that_goes_on_can_be_typed(engine: Engine, here: Collbench) -> None:
    engine.path, engine.stop_at = engine.path.rename("my plan.toml"), 13
    typed = ("--launches", "16", "--until", "decided", "--seed", "3", "--accept", "late", "--accept", "drift", "--all")
    stopped = here("gate", "my plan.toml", *SIDES, *typed, "--margin", "0.035", "--on", "fake", "--out", "G 4")
    assert "--resume 'G 4'" in stopped.out
    assert "`--resume 'G 4'`" in Path("G 4/gate.md").read_text()
    told = stopped.err[stopped.err.index("continue: ") :].splitlines()[0].removeprefix("continue: ")
    for words in ("collbench gate 'my plan.toml' ", " --margin 3.5% ", " --on fake", " --all", " --resume 'G 4'"):
        assert words in told
    engine.stop_at = None
    ended = here(*shlex.split(told)[1:])
    assert (ended.code, "accepted: drift, late" in ended.out) == (0, True), ended
    assert [one["share"] for one in json.loads(Path("G 4/gate.json").read_text())["margins"]] == [0.035]


def test_a_folder_that_holds_a_gate_says_how_to_go_on_with_it(engine: Engine, here: Collbench) -> None:
    engine.stop_at = 5
    here("gate", "plan.toml", *SIDES, "--out", "G 4")
    engine.stop_at = None
    words = "--out G 4: holds a gate already. Name a directory that does not exist yet, or "
    again = here("gate", "plan.toml", *SIDES, "--out", "G 4")
    assert (again.code, f"{words}resume it: --resume 'G 4'." in again.err) == (2, True), again
    assert here("gate", "plan.toml", *SIDES, "--resume", "G 4").code == 0
    ended = here("gate", "plan.toml", *SIDES, "--out", "G 4")
    assert (ended.code, f"{words}judge it again: collbench gate 'G 4'." in ended.err) == (2, True), ended
    Path("G 4/gate-plan.json").unlink()
    assert "already holds a run" in here("gate", "plan.toml", "--out", "G 4").err


def test_what_differs_from_the_gate_that_is_gone_on_with_is_named(
    engine: Engine, here: Collbench, tmp_path: Path
) -> None:
    library = tmp_path / "libours.so.1"
    library.write_bytes(Path(_loop.__file__).read_bytes())
    ours = ("--other", f"lib={library}")
    engine.stop_at = 3
    here("gate", "plan.toml", *ours, "--launches", "16", "--out", "kept")

    def differing(plan: str, *words: str) -> str:
        found = here("gate", plan, *words, "--resume", "kept")
        assert found.code == 2, found
        return found.err

    assert "16 launches" in differing("plan.toml", *ours, "--launches", "20")
    assert "(sides.other.libraries: " in differing("plan.toml", "--other", "env=A=1", "--launches", "16")
    text = engine.path.read_text()
    engine.path.write_text(text.replace("64K", "32K"))
    assert '(sizes: ["8","64K"] then, ["8","32K"] now)' in differing("plan.toml", *ours, "--launches", "16")
    engine.path.write_text(text)
    library.write_bytes(library.read_bytes() + b"\0")
    assert "image openmpi of side other has changed" in differing("plan.toml", *ours, "--launches", "16")
