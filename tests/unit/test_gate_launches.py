"""`collbench gate` on the fake engine: both sides in turns, what ends it, how it goes on, and the exit codes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import Answer, Collbench
from tests.unit.gate_engine import QUIET, SIDES, SLOW, TOML, Engine, connected, slow

from collbench.cli.options import MarginsType, typed_margins
from collbench.errors import RunWriteError
from collbench.launch.engines import fake
from collbench.launch.engines.fake import CORES, FakeCommand, FakeEngineSession, FakeEngineWorld
from collbench.schema.case import Case
from collbench.schema.store import Margin, Margins, RunWriter, read_run
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
