"""The command gate: both sides in turns, exit codes, what it prints and writes, interrupted gates that go on."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints
from xml.etree import ElementTree

import pytest
from tests.processes import LIMIT
from tests.unit.conftest import Answer, Collbench
from tests.unit.gate_engine import QUIET, SIDES, SLOW, TOML, Engine, connected, slow
from tests.unit.made_gates import LARGE, SMALL, Medians, fine, made_gate
from tests.unit.made_runs import made_case, spread
from tests.unit.test_gate import judged

from collbench.analysis.deciding import PairStatus, standing_of_sides
from collbench.analysis.gate import NAMES, Cause, Doubt, GateSide, Judgement
from collbench.analysis.gate import Answer as GateAnswer
from collbench.analysis.results import Cell
from collbench.analysis.runs import Flaw
from collbench.cli.gate import FILES
from collbench.cli.options import MarginsType, typed_margins
from collbench.errors import RunWriteError
from collbench.launch.engines import fake
from collbench.launch.engines.fake import CORES, FakeCommand, FakeEngineSession, FakeEngineWorld
from collbench.report.gate import LONGEST_LINE, MOST_ROWS, WORDS, document, junit, markdown, names_of, sentence, tables
from collbench.schema.case import Case
from collbench.schema.plan import Side
from collbench.schema.store import GatePlan, Margin, Margins, RunWriter, read_run
from collbench.timing import _loop


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The plan is in its folder."""
    return connected(tmp_path, monkeypatch)


def test_both_sides_of_a_cell_are_measured_one_after_the_other(engine: Engine, here: Collbench) -> None:
    found = here("gate", "plan.toml", *SIDES)
    assert found.code == 0, found
    told = json.loads(here("gate", "results/plan-gate", "--style", "json").out)
    assert [(cell["answer"], cell["comparison"]["launches"]) for cell in told["cells"]] == [("no loss", [8, 8])] * 4
    assert "# launch: 4 cells x 8 launches = 32 starts, 64 measurements, about " in found.err
    pairs = [engine.order[place : place + 2] for place in range(0, 32, 2)]
    assert all(one[0] == two[0] and {one[1], two[1]} == {"a", "b"} for one, two in pairs)
    for block in range(8):
        assert {pair[0][0] for pair in pairs[2 * block : 2 * block + 2]} == {"single", "multi"}
    assert {pair[0] for pair in pairs} == {(policy, side) for policy in ("single", "multi") for side in "ab"}
    assert here("compare", "results/plan-gate", "--by", "side").code == 0


def test_the_order_follows_from_the_seed(engine: Engine, here: Collbench) -> None:
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        engine.worlds.clear()
        assert here("gate", "plan.toml", "--out", name, "--seed", seed, *SIDES).code == 0
        orders.append(engine.order)
    assert orders[0] == orders[1] != orders[2]


def test_a_loss_at_some_sizes_is_named(engine: Engine, here: Collbench) -> None:
    engine.takes = slow
    found = here("gate", "plan.toml", *SLOW, "--style", "json")
    assert found.code == 1
    told = json.loads(found.out)
    assert {(cell["base"]["what"]["size"], cell["answer"]) for cell in told["cells"]} == {
        (8, "no loss"),
        (65536, "loss"),
    }
    assert told["other"]["variables"] == {"SLOW": "1"}


def test_a_gate_is_judged_again_from_its_folder(engine: Engine, here: Collbench) -> None:
    engine.takes = slow
    assert here("gate", "plan.toml", *SLOW, "--out", "kept").code == 1
    number = len(engine.worlds)
    assert here("gate", "kept", "--margin", "60%").code == 0
    assert "exit code 0" in Path("kept/gate.md").read_text()
    assert len(engine.worlds) == number
    refused = here("gate", "kept", "--launches", "9")
    assert (refused.code, "leave out --launches" in refused.err) == (2, True)


def test_what_is_accepted_is_said(engine: Engine, here: Collbench) -> None:
    engine.more = lambda opened, case: {"shared_gpu": True}
    assert here("gate", "plan.toml", "--out", "kept").code == 4
    found = here("gate", "kept", "--accept", "shared-gpu")
    assert (found.code, "accepted: shared GPU" in found.out) == (0, True)
    assert "accepted: shared GPU" in Path("kept/gate.md").read_text()


def test_other_sides_do_not_go_on_with_a_gate(engine: Engine, here: Collbench) -> None:
    engine.stop_at = 4
    here("gate", "plan.toml", *SIDES, "--out", "kept")
    engine.stop_at = None
    found = here("gate", "plan.toml", *SLOW, "--resume", "kept")
    assert (found.code, "sides.base.variables.SIDE" in found.err) == (2, True)
    assert here("gate", "plan.toml", *SIDES, "--resume", "kept", "--out", "x").code == 2


def test_until_decided_ends_when_every_cell_has_its_answer(engine: Engine, here: Collbench) -> None:
    engine.takes = slow
    found = here("gate", "plan.toml", *SLOW, "--launches", "40", "--until", "decided")
    assert found.code == 1, found
    assert len(engine.worlds) < 20 * 4
    assert "4 of 4 comparisons decided" in found.err


def test_what_can_only_be_faster_or_the_same_is_decided(engine: Engine, here: Collbench) -> None:
    """How much faster it is would take more launches, and nobody asked."""

    def perhaps_faster(opened: FakeEngineWorld, case: Case, noise: float) -> float:
        gains = opened.world.stack.overrides.variables.get("SLOW") == "1"
        return QUIET(opened, case, noise) * (1 - 0.02 * min(abs(noise), 2) if gains else 1)

    engine.takes = perhaps_faster
    assert here("gate", "plan.toml", *SLOW, "--launches", "40", "--until", "decided").code == 0
    assert len(engine.worlds) <= 7 * 4


def test_cells_that_are_decided_are_not_launched_again(engine: Engine, here: Collbench) -> None:
    def noisy(opened: FakeEngineWorld, case: Case, noise: float) -> float:
        return 100 + (4 if opened.world.cell.policy == "multi" else 0.1) * noise

    engine.takes = noisy
    here("gate", "plan.toml", "--launches", "20", "--until", "decided")
    assert "of at most 20" in Path("results/plan-gate/gate.md").read_text()
    policies = [policy for policy, _ in engine.order]
    assert policies.count("multi") > policies.count("single")


def test_a_cell_that_is_skipped_ends_the_gate_after_its_first_block(engine: Engine, here: Collbench) -> None:
    engine.more = lambda opened, case: {"status": "skipped", "reason": "no such op"} if case["size"] == 8 else {}
    found = here("gate", "plan.toml")
    assert found.code == 4
    assert len(engine.worlds) == 4
    assert "stopped: base: bcast is skipped (no such op)" in found.err
    told = json.loads(Path("results/plan-gate/gate.json").read_text())
    assert sorted(cell["reason"] for cell in told["cells"]) == ["incomplete", "incomplete", "skipped", "skipped"]


def test_what_breaks_on_the_other_side_is_named_first(engine: Engine, here: Collbench) -> None:
    def broken(opened: FakeEngineWorld, case: Case) -> dict[str, Any]:
        wrong = opened.world.stack.overrides.variables.get("SIDE") == "b" and case["size"] > 8
        return {"status": "failed", "reason": "wrong result"} if wrong else {}

    engine.more = broken
    found = here("gate", "plan.toml", *SIDES)
    assert found.code == 1
    told = json.loads(Path("results/plan-gate/gate.json").read_text())
    assert (told["broken"], told["not_answered"]) == (2, 0)
    reasons = [cell["why"] for cell in told["cells"] if cell["answer"] == "broken"]
    assert all("wrong result" in why for why in reasons)


def test_a_side_that_does_not_start_is_told_once_and_is_the_reason_of_every_cell(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f": MPI_Init: {'a component, of which there are several, was not found, ' * 5}"

    def play(command: FakeCommand) -> int:
        return 3 if command.world.stack.overrides.variables.get("SIDE") == "b" else engine.play(command)

    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, connect=lambda *_: FakeEngineSession(play, remark=text)))
    found = here("gate", "plan.toml", *SIDES)
    assert (found.code, len(engine.worlds)) == (1, 2)
    told = json.loads(Path("results/plan-gate/gate.json").read_text())
    assert (told["broken"], told["planned"]) == (4, 4)
    assert (found.out.count(text), found.err.count(text)) == (1, 1)
    assert found.out.count("MPI_Init") == 2  # in full, and shortened in the sentence
    assert re.search(r"launch \d \(other: openmpi \w+ strict, 2 ranks\) ended as launch \d \(other: openmpi", found.err)
    assert found.err.endswith("# stopped: other: everything failed\n")


def test_a_library_that_no_rank_loads_ends_the_gate_after_its_first_block(
    engine: Engine, here: Collbench, tmp_path: Path
) -> None:
    library = tmp_path / "libours.so.1"
    library.write_bytes(Path(_loop.__file__).read_bytes())
    found = here("gate", "plan.toml", "--other", f"lib={library}")
    assert (found.code, len(engine.worlds)) == (4, 4)
    assert "not verified: base: its ranks do not tell which libours.so they loaded" in found.out
    assert engine.worlds[0].world.stack.overrides.variables["COLLBENCH_LOADED"] == "libours.so"


def test_an_image_takes_the_place_of_the_plans(engine: Engine, here: Collbench) -> None:
    found = here("gate", "plan.toml", "--other", "image=mpich", "--out", "kept")
    assert found.code == 0, found
    assert {one.world.cell.image for one in engine.worlds} == {"openmpi", "mpich"}
    assert {record.case.where.image for record in read_run(Path("kept")).records} == {"openmpi"}
    experiment = read_run(Path("kept")).manifest.experiment
    assert experiment is not None and {image.side for image in experiment.images} == {"base", "other"}


WRONG_REQUESTS = {
    "few launches": (("--launches", "5"), "with fewer than 6 launches a side"),
    "no kind": (("--base", "imge=x"), "Did you mean image?"),
    "no value": (("--base", "image="), "write image=REF"),
    "no variable": (("--base", "env=A"), "write env=A=VALUE"),
    "a bad variable": (("--other", "env=A-B=1"), "other: variables: 'A-B'"),
    "two values": (("--base", "env=A=1", "--base", "env=B=1", "--base", "env=A="), "--base: has env=A=1 and env=A=."),
    "two images": (
        ("--other", "image=mpich", "--other", "image=openmpi=x"),
        "--other: has image=openmpi=mpich and image=openmpi=x.",
    ),
    "no file": (("--other", "lib=/nowhere/libx.so"), "/nowhere/libx.so: No such file"),
    "no library": (("--other", "lib=/etc/hostname"), "is not an ELF file, so no shared library"),
    "no image of the plan": (("--other", "image=mpich=x"), "the plan's images are openmpi"),
    "ranks": (("-n", "2"), "a launch plan says itself"),
    "a variable in Latin-1": (("--other", "env=A=\udce9"), "--other env=A=\\xe9: has bytes that are not UTF-8"),
    "an image in Latin-1": (("--base", "image=\udce9"), "--base image=\\xe9: has bytes that are not UTF-8"),
    "a library in Latin-1": (("--other", "lib=/\udce9.so"), "--other lib=/\\xe9.so: has bytes that are not UTF-8"),
    "an engine in Latin-1": (("--docker-host", "\udce9"), "--docker-host \\xe9: has bytes that are not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG_REQUESTS)
def test_a_wrong_request_says_what_would_work(engine: Engine, here: Collbench, what: str) -> None:
    arguments, words = WRONG_REQUESTS[what]
    found = here("gate", "plan.toml", *arguments)
    assert (found.code, words in found.err) == (2, True), found
    assert engine.worlds == []
    assert not Path("results").exists()


def test_a_plan_and_libraries_in_folders_that_are_not_utf8_are_refused(
    engine: Engine, here: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = here("gate", engine.path.rename(tmp_path / "\udce9.toml").name)
    assert (found.code, "gate \\xe9.toml: has bytes that are not UTF-8" in found.err) == (2, True), found
    (tmp_path / "\udce9").mkdir()
    monkeypatch.chdir(tmp_path / "\udce9")
    Path("plan.toml").write_text(TOML)
    found = here("gate", "plan.toml", "--other", "preload=libx.so")
    assert (found.code, "\\xe9/libx.so: has bytes that are not UTF-8" in found.err) == (2, True), found
    assert [path.name for path in Path().iterdir()] == ["plan.toml"]


def test_more_ranks_than_cores_cannot_pass_and_that_is_said_before_they_are_started(
    engine: Engine, here: Collbench
) -> None:
    crowded = TOML.replace('["single", "multi"]', '["single"]') + f"ranks = [2, {CORES + 1}]\n"
    engine.path.write_text(crowded)
    refused = here("gate", "plan.toml")
    assert (refused.code, "set oversubscribe = true" in refused.err, engine.worlds) == (2, True, [])
    engine.path.write_text(crowded + "oversubscribe = true\n")
    said = f"# more ranks than cores (base: openmpi single strict, {CORES + 1} ranks): such cells do not pass without"
    engine.more = lambda opened, case: {"oversubscribed": False}
    found = here("gate", "plan.toml", "--out", "kept")
    assert (found.code, said in found.err) == (4, True), found
    found = here("gate", "plan.toml", "--accept", "oversubscribed")
    assert (found.code, "more ranks than cores (" in found.err) == (0, False), found


def test_an_image_makes_no_difference_to_the_host(engine: Engine, here: Collbench) -> None:
    engine.path.write_text(TOML.replace('"multi"', '"host"'))
    found = here("gate", "plan.toml", "--other", "image=x")
    assert (found.code, "policy host, whose ranks are in no image" in found.err) == (2, True)


@pytest.mark.parametrize("error", [RunWriteError("disk full."), ZeroDivisionError("oops"), OSError(28, "no space")])
def test_whatever_goes_wrong_is_never_a_loss(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(RunWriter, "append", fail)
    found: Answer = here("gate", "plan.toml")
    assert found.code == 4
    assert "no answer" in found.err


def test_a_folder_that_no_gate_wrote_is_refused(here: Collbench, tmp_path: Path) -> None:
    found = here("gate", tmp_path)
    assert (found.code, "not written by collbench gate" in found.err) == (2, True)


@pytest.mark.parametrize(
    ("typed", "margins"),
    [("5%", (Margin(0.05),)), ("20%:1M,0.1:64M,5%", (Margin(0.2, 1 << 20), Margin(0.1, 64 << 20), Margin(0.05)))],
)
def test_margins_as_they_are_typed(typed: str, margins: Margins) -> None:
    found = MarginsType().convert(typed, None, None)
    assert found == margins
    assert MarginsType().convert(typed_margins(found), None, None) == margins


@pytest.mark.parametrize("typed", ["5%:1M", "5%,2%", "5%:1M,3%:64K,1%", "5%:1M,3%:1M,1%", "x", "5%:1Q,2%", "120%", ""])
def test_odd_margins_are_refused_before_anything_starts(engine: Engine, here: Collbench, typed: str) -> None:
    found = here("gate", "plan.toml", "--margin", typed)
    assert (found.code, len(engine.worlds)) == (2, 0)


# `collbench gate` that is interrupted ---------------------------------------------------------------------------------


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


# What a gate prints and writes ----------------------------------------------------------------------------------------

THIRD = made_case(image="openmpi", size=8)
BASE: Medians = {SMALL: spread(1e-6), LARGE: spread(1e-4), THIRD: spread(1e-6)}
OTHER: Medians = {SMALL: spread(1.0001e-6), LARGE: spread(1.2e-4), THIRD: ["it hangs"] * 10}


def test_cells_are_counted_and_not_their_sides(here: Collbench, tmp_path: Path) -> None:
    wide = [time * (1 + number % 2) for number, time in enumerate(spread(1e-6))]
    found = here("gate", made_gate(tmp_path / "gate", {SMALL: wide}, {SMALL: spread(1e-6)}))
    assert "in 1 of 1 cell launches differ by more than half" in found.out


def test_losses_come_first_in_every_form(here: Collbench, tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", BASE, OTHER)
    found = here("gate", folder, "--all")
    assert found.code == 1
    assert [line.split("  ")[0] for line in found.out.splitlines() if line.startswith(("broken", "loss", "no "))] == [
        "broken", "loss", "no loss"
    ]  # fmt: skip
    text = (folder / "gate.md").read_text()
    assert 0 < text.index("### Broken: 1") < text.index("### Losses: 1") < text.index("No loss: 1")
    assert "3 cells planned: 1 broken, 1 lost, 1 without a loss, 0 not answered; exit code 1" in text


def test_junit_has_a_test_case_for_each_cell(here: Collbench, tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", BASE, OTHER)
    here("gate", folder)
    suite = ElementTree.parse(folder / "gate.xml").getroot()[0]  # noqa: S314 - our own
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3", "failures": "2", "errors": "0"
    }  # fmt: skip
    assert suite.get("timestamp") == "2026-01-01T00:00:00"
    assert suite.get("skipped") == "0"
    assert suite.get("time") == "0.223000"
    times = {case.get("name"): case.get("time") for case in suite.iter("testcase")}
    assert times["allreduce 64"] == "0.002000"  # 10 launches a side, each of 100 samples of 1 us
    outcomes = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert outcomes == {"allreduce 64": ["system-out"], "allreduce 64K": ["failure"], "allreduce 8": ["failure"]}


def test_the_document_accounts_for_every_cell(here: Collbench, tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", BASE, OTHER)
    printed = json.loads(here("gate", folder, "--style", "json").out)
    assert printed == json.loads((folder / "gate.json").read_text())
    assert [printed[name] for name in ("planned", "broken", "lost", "no_loss", "not_answered")] == [3, 1, 1, 1, 0]
    assert [(cell["name"], cell["answer"], cell["reason"]) for cell in printed["cells"]] == [
        ("allreduce 64", "no loss", None), ("allreduce 64K", "loss", None), ("allreduce 8", "broken", "broken")
    ]  # fmt: skip
    assert printed["exit_code"] == 1


@pytest.mark.parametrize("style", ["csv", "markdown", "latex"])
def test_other_styles_have_the_cells(here: Collbench, tmp_path: Path, style: str) -> None:
    found = here("gate", made_gate(tmp_path / "gate", BASE, OTHER), "--style", style, "--all")
    assert found.out.count("allreduce") >= 3


def test_an_answer_that_cannot_be_printed_is_no_loss(tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", fine(), fine())
    command = [sys.executable, "-m", "collbench", "gate", str(folder)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
    assert (ended.returncode, "no answer" in ended.stderr) == (4, True), ended


def many(number: int, state: str, text: str = "why") -> Judgement:
    """So many cells that nobody measured."""
    cases = [made_case(image="openmpi", size=8 * (1 + index)) for index in range(number)]
    plan = GatePlan(plan="p", cells=tuple(cases))
    doubt = Doubt("skipped", ("base", text))
    reason = doubt if state == "no answer" else None
    answers = tuple(GateAnswer(case, case, None, state, 0.02, reason) for case in cases)  # type: ignore[arg-type]
    return Judgement(plan, gate_sides(), (Margin(0.02),), answers)


def gate_sides(**variables: str) -> tuple[GateSide, GateSide]:
    """The plan as it stands, and with these variables."""
    return GateSide("base", Side(variables=variables), {}, ()), GateSide("other", Side(), {}, ())


@pytest.mark.parametrize("state", ["loss", "no answer"])
def test_a_comment_has_room_for_any_number_of_cells(state: str) -> None:
    found = many(10_000, state, "*" * 5_000)
    text = markdown(found, names_of(found.answers))
    assert len(text) < 60_000
    assert sum(line.startswith("| ") for line in text.splitlines()) == 2 + MOST_ROWS
    assert "10000 cells planned" in text
    assert "of which" in text


def outside_code(text: str) -> str:
    """What remains of Markdown without its blocks and spans of code, in which nothing is live."""
    blocks = re.compile(r"^(`{3,})text\n.*?\n\1$", re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", blocks.sub("", text))


LIVE = ["@admin and @team/all", "see https://evil.example/x?y=1 or www.evil.example", "see #12, GH-12, !3 and ~bug",
        "[click](https://x) ![i](y) <img src=x onerror=1> &lt;", "a | b \\| c || d", "``` ` `` code", "`@x` `` @y ``",
        "**bold** _x_ ~~y~~ $z$ :smile: 1234567890abcdef %12 &3", "--- | ---",
        "</details></summary> <!-- x"]  # fmt: skip


@pytest.mark.parametrize("text", [*LIVE, "@all " * 1000])
def test_nothing_of_a_program_is_live_in_a_comment(text: str) -> None:
    """No mention, link, reference or HTML, and tables keep their columns: in code spans all of that is text."""
    case = made_case(image=text[:60])
    doubt = Doubt("skipped", ("base", text))
    plan = GatePlan(plan="p", cells=(case, SMALL))
    answers = tuple(GateAnswer(one, one, None, "no answer", 0.02, doubt) for one in (case, SMALL))
    refused = (Cause("flaw", (Flaw("unreadable", Path(text), (1, 1, 1, text)),)),)
    found = Judgement(plan, gate_sides(A=text[:60]), (Margin(0.02),), answers, refused=refused)
    written = markdown(found, names_of(found.answers))
    left = outside_code(written).replace("<details><summary>Reasons in full</summary>", "").replace("</details>", "")
    for live in ("@", "<", "&", "~", "http", "www", "#1", "GH-", "!", "[", ":smile", "$", "1234567890", "bold", "`"):
        assert live not in left, left
    rows = [line for line in written.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows} == {7}


def test_a_long_reason_is_shortened_where_people_read_and_whole_for_programs(here: Collbench, tmp_path: Path) -> None:
    long = "error: " + " ".join(f"word{number}" for number in range(600))
    other: Medians = {SMALL: [long] * 10, LARGE: spread(1e-4)}
    folder = made_gate(tmp_path / "gate", fine(), other)
    found = here("gate", folder)
    assert len(found.out) < 5 * LONGEST_LINE and long not in found.out
    text = (folder / "gate.md").read_text()
    assert len(text.splitlines()[0]) < 220 and long in text
    error = next(ElementTree.parse(folder / "gate.xml").getroot().iter("failure"))  # noqa: S314 - our own
    assert len(error.get("message") or "") <= 200 and long in (error.text or "")
    document = json.loads((folder / "gate.json").read_text())
    assert len(document["answer"]) <= 220 and document["cells"][0]["why"].endswith(long)
    assert long in here("gate", folder, "--style", "csv").out


@pytest.mark.parametrize(("number", "long"), [(1, ""), (12, "a name that is very long " * 3), (40, "x" * 300)])
def test_the_first_line_is_short_whatever_cells_are_called(tmp_path: Path, number: int, long: str) -> None:
    cases = [made_case(image=f"{long}{index}", size=8) for index in range(number)]
    base, other = ({case: spread(1e-6 * factor) for case in cases} for factor in (1, 1.5))
    found = judged(made_gate(tmp_path, base, other))
    assert len(sentence(found, names_of(found.answers))) <= 250


def test_hostile_text_stays_text() -> None:
    """A run is somebody's file: its texts break no table, no XML, and no terminal."""
    found = many(2, "no answer", "</error>\x00\x1b[31m\ud800\ufffe | <script>\n\u202e")
    names = names_of(found.answers)
    root = ElementTree.fromstring(junit(found, names))  # noqa: S314 - our own
    (message,) = {error.get("message") for error in root.iter("error")}
    assert message is not None
    assert message.startswith("base: </error>\\x00\\x1b[31m\\ud800\\ufffe | <script>")
    text = markdown(found, names)
    assert "<script>" not in outside_code(text)
    assert "\\|" in text
    assert len(document(found, names)["cells"]) == 2


def test_cells_of_one_name_get_numbers() -> None:
    cases = [made_case(image="openmpi"), made_case(image="openmpi")]
    answers = tuple(GateAnswer(case, case, None, "no answer", 0.02, Doubt("missing")) for case in cases)
    names = names_of(answers)
    assert [names.of(one) for one in answers] == ["allreduce (1) 1K", "allreduce (2) 1K"]


def test_a_table_has_few_rows_unless_all_are_asked_for() -> None:
    found = many(100, "no answer")
    names = names_of(found.answers)
    assert len(tables(found, names)[1].rows) == MOST_ROWS
    assert len(tables(found, names, every=True)[1].rows) == 100


def test_every_doubt_and_every_cause_has_words() -> None:
    assert {*NAMES, *get_args(get_type_hints(Cause)["kind"])} == WORDS.keys()
