"""The command gate: both sides in turns, exit codes, what it prints and writes, interrupted gates that go on."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest
from tests.processes import LIMIT
from tests.runs import read_run
from tests.unit.conftest import Collbench
from tests.unit.fake_engine import FakeCommand, FakeEngineSession, FakeEngineWorld
from tests.unit.gate_engine import QUIET, SIDES, SLOW, TOML, Engine, Takes, connected, slow
from tests.unit.made_gates import LARGE, SMALL, Medians, fine, made_gate
from tests.unit.made_runs import made_case, spread
from tests.unit.test_gate import judged

from collbench.analysis.gate import NAMES, Answer, Cause, Doubt, GateSide, Judgement
from collbench.analysis.planning import PairStatus, standing_of_sides
from collbench.analysis.results import Cell
from collbench.analysis.runs import Flaw
from collbench.cli.gate import FILES
from collbench.cli.options import MARGINS, typed_margins
from collbench.errors import RunWriteError
from collbench.launch.engines import fake
from collbench.launch.engines.fake import CORES
from collbench.report.gate import LONGEST_LINE, MOST_ROWS, WORDS, document, junit, markdown, names_of, sentence, tables
from collbench.schema.case import Case
from collbench.schema.plan import Side
from collbench.schema.store import GatePlan, Margin, Margins, RunWriter
from collbench.timing import _loop

UNTIL_DECIDED = ("--until", "decided")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The plan is in its folder."""
    return connected(tmp_path, monkeypatch)


def document_in(folder: str = "results/plan-gate") -> dict[str, Any]:
    written: dict[str, Any] = json.loads(Path(folder, "gate.json").read_text())
    return written


def a_library(folder: Path) -> Path:
    """A shared library under a name that no rank loads."""
    path = folder / "libours.so.1"
    path.write_bytes(Path(_loop.__file__).read_bytes())
    return path


def variable(opened: FakeEngineWorld, name: str) -> str | None:
    return opened.world.stack.overrides.variables.get(name)


def test_both_sides_of_a_cell_are_measured_one_after_the_other(engine: Engine, here: Collbench) -> None:
    done = here("gate", "plan.toml", *SIDES)
    assert done.code == 0, done
    # cells, launches, starts and measurements
    assert re.findall(r"\d+", done.err.splitlines()[0])[:4] == ["4", "8", "32", "64"]
    again = json.loads(here("gate", "results/plan-gate", "--style", "json").out)
    assert [(cell["answer"], cell["comparison"]["launches"]) for cell in again["cells"]] == [("no loss", [8, 8])] * 4
    pairs = [engine.order[place : place + 2] for place in range(0, 32, 2)]
    assert all(first[0] == second[0] and {first[1], second[1]} == {"a", "b"} for first, second in pairs)
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


def test_a_loss_at_some_sizes_is_named_and_judged_again_from_its_folder(engine: Engine, here: Collbench) -> None:
    engine.takes = slow
    done = here("gate", "plan.toml", *SLOW, "--style", "json", "--out", "kept")
    printed = json.loads(done.out)
    assert (done.code, printed["other"]["variables"]) == (1, {"SLOW": "1"})
    assert {(cell["base"]["what"]["size"], cell["answer"]) for cell in printed["cells"]} == {
        (8, "no loss"), (65536, "loss"),
    }  # fmt: skip
    number = len(engine.worlds)
    assert here("gate", "kept", "--margin", "60%").code == document_in("kept")["exit_code"] == 0
    assert Path("kept/gate.md").read_text().startswith("**PASS")
    refused = here("gate", "kept", "--launches", "9")
    assert (refused.code, "--launches" in refused.err, len(engine.worlds)) == (2, True, number)


def test_what_is_accepted_makes_no_doubt(engine: Engine, here: Collbench) -> None:
    engine.more = lambda opened, case: {"shared_gpu": True}
    assert here("gate", "plan.toml", "--out", "kept").code == 4
    assert here("gate", "kept", "--accept", "shared-gpu").code == 0
    assert document_in("kept")["accepted"] == ["shared GPU"]


def perhaps_faster(opened: FakeEngineWorld, case: Case, noise: float) -> float:
    """How much faster it is would take more launches, which the gate does not need."""
    gains = variable(opened, "SLOW") == "1"
    return QUIET(opened, case, noise) * (1 - 0.02 * min(abs(noise), 2) if gains else 1)


@pytest.mark.parametrize(("takes", "code", "most"), [(slow, 1, 19), (perhaps_faster, 0, 7)])
def test_until_decided_ends_with_all_answers(
    engine: Engine, here: Collbench, takes: Takes, code: int, most: int
) -> None:
    engine.takes = takes
    done = here("gate", "plan.toml", *SLOW, "--launches", "40", *UNTIL_DECIDED)
    assert (done.code, "4 of 4" in done.err) == (code, True), done
    assert len(engine.worlds) <= most * 4


def test_cells_that_are_decided_are_not_launched_again(engine: Engine, here: Collbench) -> None:
    engine.takes = lambda opened, case, noise: 100 + (4 if opened.world.cell.policy == "multi" else 0.1) * noise
    here("gate", "plan.toml", "--launches", "20", *UNTIL_DECIDED)
    policies = [policy for policy, _ in engine.order]
    assert policies.count("multi") > policies.count("single")


def test_a_cell_that_is_skipped_ends_the_gate_after_its_first_block(engine: Engine, here: Collbench) -> None:
    engine.more = lambda opened, case: {"status": "skipped", "reason": "no such op"} if case["size"] == 8 else {}
    done = here("gate", "plan.toml")
    assert (done.code, len(engine.worlds), "no such op" in done.err.splitlines()[-1]) == (4, 4, True), done
    assert sorted(cell["reason"] for cell in document_in()["cells"]) == ["incomplete"] * 2 + ["skipped"] * 2


def test_a_side_that_does_not_start_is_printed_once_and_is_the_reason_of_every_cell(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f": MPI_Init: {'a component, of which there are several, was not found, ' * 5}"

    def play(command: FakeCommand) -> int:
        return 3 if command.world.stack.overrides.variables.get("SIDE") == "b" else engine.play(command)

    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, connect=lambda *_: FakeEngineSession(play, remark=text)))
    done = here("gate", "plan.toml", *SIDES)
    assert (done.code, len(engine.worlds)) == (1, 2)
    assert (document_in()["broken"], document_in()["planned"]) == (4, 4)
    assert (done.out.count(text), done.err.count(text)) == (1, 1)
    assert done.out.count("MPI_Init") == 2  # in full, and shortened in the sentence
    assert re.search(r"launch \d \(other: openmpi \w+ strict, 2 ranks\) .* launch \d \(other: openmpi", done.err)
    assert done.err.splitlines()[-1].startswith("# stopped: other: ")


def test_a_library_that_no_rank_loads_ends_the_gate(engine: Engine, here: Collbench, tmp_path: Path) -> None:
    done = here("gate", "plan.toml", "--other", f"lib={a_library(tmp_path)}")
    assert (done.code, len(engine.worlds), "libours.so " in done.out) == (4, 4, True)
    assert {cell["reason"] for cell in document_in()["cells"]} == {"not verified"}
    assert variable(engine.worlds[0], "COLLBENCH_LOADED") == "libours.so"


def test_an_image_takes_the_place_of_the_plans(engine: Engine, here: Collbench) -> None:
    done = here("gate", "plan.toml", "--other", "image=mpich", "--out", "kept")
    assert done.code == 0, done
    assert {opened.world.cell.image for opened in engine.worlds} == {"openmpi", "mpich"}
    run = read_run(Path("kept"))
    assert {record.case.where.image for record in run.records} == {"openmpi"}
    assert run.manifest.experiment is not None
    assert {image.side for image in run.manifest.experiment.images} == {"base", "other"}


CROWDED = TOML.replace('["single", "multi"]', '["single"]') + f"ranks = [2, {CORES + 1}]\n"

#: What is asked of the plan, and of other plans.
WRONG_REQUESTS = (
    "--launches 5", "--base imge=x", "--base image=", "--base env=A", "--other env=A-B=1",
    "--base env=A=1 --base env=B=1 --base env=A=", "--other image=mpich --other image=openmpi=x",
    "--other lib=/nowhere/libx.so", "--other lib=/etc/hostname", "--other image=mpich=x", "-n 2",
    "--other env=A=\udce9", "--base image=\udce9", "--other lib=/\udce9.so", "--docker-host \udce9",
    "--out /proc/none/x", "--out plan.toml/x", "--margin 5%:1M", "--margin 5%,2%", "--margin 5%:1M,3%:64K,1%",
    "--margin 5%:1M,3%:1M,1%", "--margin x", "--margin 5%:1Q,2%", "--margin 120%", "--margin ''",
)  # fmt: skip
WRONG_PLANS = {
    "an image of the host": ("--other image=x", TOML.replace('"multi"', '"host"')),
    "more ranks than cores": ("", CROWDED),
    "sides of the plan": ("", TOML + "[sides.a]\n[sides.b]\n"),
}


def test_wrong_requests_start_nothing(engine: Engine, here: Collbench, golden: Callable[[str, str], None]) -> None:
    text = ""
    for what, (flags, plan) in {**{flags: (flags, TOML) for flags in WRONG_REQUESTS}, **WRONG_PLANS}.items():
        engine.path.write_text(plan)
        refused = here("gate", "plan.toml", *shlex.split(flags))
        assert (refused.code, engine.worlds, Path("results").exists()) == (2, [], False), (what, refused)
        text += f"{what}: {refused.err}".replace("\udce9", "\\xe9")
    no_gate = here("gate", "tmp")
    assert no_gate.code == 2
    golden("gate-requests.txt", f"{text}no gate: {no_gate.err}")


def test_a_plan_and_libraries_in_folders_that_are_not_utf8_are_refused(
    engine: Engine, here: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = here("gate", engine.path.rename(tmp_path / "\udce9.toml").name)
    assert (refused.code, "gate \\xe9.toml: " in refused.err) == (2, True), refused
    (tmp_path / "\udce9").mkdir()
    monkeypatch.chdir(tmp_path / "\udce9")
    Path("plan.toml").write_text(TOML)
    refused = here("gate", "plan.toml", "--other", "preload=libx.so")
    assert (refused.code, "\\xe9/libx.so: " in refused.err) == (2, True), refused
    assert [path.name for path in Path().iterdir()] == ["plan.toml"]


def test_more_ranks_than_cores_cannot_pass_and_that_is_said_before(engine: Engine, here: Collbench) -> None:
    engine.path.write_text(CROWDED + "oversubscribe = true\n")
    engine.more = lambda opened, case: {"oversubscribed": False}
    warned = here("gate", "plan.toml", "--out", "kept")
    assert (warned.code, f"(base: openmpi single strict, {CORES + 1} ranks): " in warned.err) == (4, True), warned
    accepted = here("gate", "plan.toml", "--accept", "oversubscribed")
    assert (accepted.code, "(base: openmpi single" in accepted.err) == (0, False), accepted


@pytest.mark.parametrize("error", [RunWriteError("disk full."), ZeroDivisionError("oops"), OSError(28, "no space")])
def test_no_error_is_a_loss(engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(RunWriter, "append", Mock(side_effect=error))
    done = here("gate", "plan.toml")
    assert (done.code, "no answer" in done.err) == (4, True)


def test_margins_as_they_are_typed() -> None:
    by_size = (Margin(0.2, 1 << 20), Margin(0.1, 64 << 20), Margin(0.05))
    for typed, margins in {"5%": (Margin(0.05),), "20%:1M,0.1:64M,5%": by_size}.items():
        assert MARGINS.convert(typed, None, None) == margins
        assert MARGINS.convert(typed_margins(margins), None, None) == margins


# `collbench gate` that is interrupted ---------------------------------------------------------------------------------


def test_ctrl_c_leaves_what_resume_goes_on_with(engine: Engine, here: Collbench) -> None:
    """With the sides and the number of launches that it was begun with."""
    engine.stop_at = 13
    stopped = here("gate", "plan.toml", *SIDES, "--launches", "6", "--out", "kept")
    assert stopped.code == 4
    assert re.search(r"\b26 records .* collbench gate plan\.toml --resume kept .*--base env=SIDE=a ", stopped.err)
    assert document_in("kept")["unfinished"] == {"blocks": 3, "most": 6, "until_decided": False}
    early = here("gate", "kept")
    assert (early.code, early.out) == (4, stopped.out)
    assert all("interrupted" in Path("kept", name).read_text() for name in FILES)
    engine.stop_at = 16
    again = here("gate", "plan.toml", *SIDES, "--resume", "kept")
    assert (again.code, document_in("kept")["unfinished"]["blocks"]) == (4, 4)
    engine.stop_at = None
    ended = here("gate", "plan.toml", "--resume", "kept")
    assert (ended.code, "interrupted" in ended.out) == (0, False)
    assert (document_in("kept")["unfinished"], len(engine.worlds)) == (None, 24)
    launches = [record.launch for record in read_run(Path("kept")).records]
    assert sorted(launches) == [number for number in range(6) for _ in range(8)]


def test_an_interrupted_gate_passes_and_loses_nothing(engine: Engine, here: Collbench) -> None:
    """Fewer launches than were planned are looked at too early; until decided, others may still differ."""
    engine.takes, engine.stop_at = slow, 28
    stopped = here("gate", "plan.toml", *SLOW, "--launches", "40", *UNTIL_DECIDED, "--out", "kept")
    assert (stopped.code, " 160 starts" in stopped.err.splitlines()[0]) == (4, True)
    assert document_in("kept")["unfinished"] == {"blocks": 6, "most": 40, "until_decided": True}
    engine.worlds.clear()
    engine.stop_at = 30
    lost = here("gate", "plan.toml", *SLOW, "--out", "fixed")
    assert (lost.code, document_in("fixed")["lost"]) == (4, 2), lost.out


def test_ctrl_c_before_and_after_all_launches(engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, there is no answer; a gate that has ended is judged again when it is resumed."""
    with monkeypatch.context() as interrupted:
        interrupted.setattr("collbench.cli.launch.prepare", Mock(side_effect=KeyboardInterrupt))
        assert here("gate", "plan.toml", *SIDES, "--out", "kept")[:2] == (130, "")
    assert here("gate", "plan.toml", *SIDES, "--out", "kept").code == 0
    monkeypatch.setattr("collbench.cli.launch.prepare", Mock(side_effect=KeyboardInterrupt))
    ended = here("gate", "plan.toml", *SIDES, "--resume", "kept")
    assert (ended.code, ended.out.startswith("PASS")) == (0, True)


def test_a_gate_is_resumed_and_judged_as_it_was_begun_where_no_flag_says_otherwise(
    engine: Engine, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half as long again is a loss by the default margin; within 60 % it is none."""
    decided_by: set[Margins] = set()

    def recording(cells: list[Cell], blocks: int, most: int, margins: Margins) -> list[PairStatus]:
        decided_by.add(margins)
        return standing_of_sides(cells, blocks, most, margins)

    monkeypatch.setattr("collbench.cli.gate.standing_of_sides", recording)
    engine.takes, engine.stop_at = slow, 20
    begun = ("--launches", "12", *UNTIL_DECIDED, "--margin", "60%", "--accept", "late")
    assert here("gate", "plan.toml", *SLOW, *begun, "--out", "kept").code == 4
    engine.stop_at = None
    ended = here("gate", "plan.toml", "--resume", "kept")
    assert (ended.code, decided_by) == (0, {(Margin(0.6),)}), ended
    assert here("gate", "kept").code == 0
    assert (document_in("kept")["margins"], document_in("kept")["accepted"]) == ([{"share": 0.6}], ["late"])
    assert here("gate", "kept", "--margin", "2%").code == 4, "so few do not decide it"


def test_what_is_decided_by_the_margin_of_the_gate_starts_no_more_launches(engine: Engine, here: Collbench) -> None:
    """By the default margin it would be open."""
    engine.takes = lambda opened, case, noise: 100 + 5 * noise
    assert here("gate", "plan.toml", *SIDES, "--margin", "60%", "--out", "kept").code == 0
    worlds = len(engine.worlds)
    more = (*UNTIL_DECIDED, "--launches", "16", "--resume", "kept")
    ended = here("gate", "plan.toml", *more)
    assert (ended.code, len(engine.worlds)) == (0, worlds), ended
    assert here("gate", "plan.toml", *more, "--margin", "2%").code == 4
    assert len(engine.worlds) > worlds


def test_the_command_that_goes_on_can_be_typed(engine: Engine, here: Collbench) -> None:
    engine.path, engine.stop_at = engine.path.rename("my plan.toml"), 13
    flags = ("--launches", "16", *UNTIL_DECIDED, "--seed", "3", "--accept", "late", "--accept", "drift", "--all")
    stopped = here("gate", "my plan.toml", *SIDES, *flags, "--margin", "0.035", "--on", "fake", "--out", "G 4")
    assert "--resume 'G 4'" in stopped.out
    assert "`--resume 'G 4'`" in Path("G 4/gate.md").read_text()
    command = stopped.err[stopped.err.index("continue: ") :].splitlines()[0].removeprefix("continue: ")
    for words in ("collbench gate 'my plan.toml' ", " --margin 3.5% ", " --on fake", " --all", " --resume 'G 4'"):
        assert words in command
    engine.stop_at = None
    ended = here(*shlex.split(command)[1:])
    assert (ended.code, sorted(document_in("G 4")["accepted"])) == (0, ["drift", "late"]), ended
    assert [margin["share"] for margin in document_in("G 4")["margins"]] == [0.035]


def test_a_folder_that_holds_a_gate_says_how_to_go_on_with_it(engine: Engine, here: Collbench) -> None:
    begin = ("gate", "plan.toml", *SIDES, "--out", "G 4")
    engine.stop_at = 5
    here(*begin)
    engine.stop_at = None
    again = here(*begin)
    assert (again.code, "--resume 'G 4'" in again.err) == (2, True), again
    assert here("gate", "plan.toml", *SIDES, "--resume", "G 4").code == 0
    ended = here(*begin)
    assert (ended.code, "collbench gate 'G 4'" in ended.err, "--resume" in ended.err) == (2, True, False), ended
    Path("G 4/gate-plan.json").unlink()
    run = here(*begin)
    assert (run.code, "collbench gate 'G 4'" in run.err) == (2, False), run


def test_what_differs_from_the_gate_that_is_resumed_is_named(engine: Engine, here: Collbench, tmp_path: Path) -> None:
    library = a_library(tmp_path)
    ours = ("--other", f"lib={library}", "--launches", "16")
    engine.stop_at = 3
    here("gate", "plan.toml", *ours, "--out", "kept")

    def differing(*flags: str) -> str:
        refused = here("gate", "plan.toml", *flags, "--resume", "kept")
        assert (refused.code, len(engine.worlds)) == (2, 3), refused
        return refused.err

    assert "16 launches" in differing(*ours[:2], "--launches", "20")
    assert "(sides.other.libraries: " in differing("--other", "env=A=1", "--launches", "16")
    assert "sides.base.variables.SIDE" in differing(*ours, "--base", "env=SIDE=a")
    assert "--out" in differing(*ours, "--out", "x")
    text = engine.path.read_text()
    engine.path.write_text(text.replace("64K", "32K"))
    assert re.search(r'\(sizes: \["8","64K"\] .*\["8","32K"\]', differing(*ours))
    engine.path.write_text(text)
    library.write_bytes(library.read_bytes() + b"\0")
    assert re.search(r"image openmpi .* other ", differing(*ours))


# What a gate prints and writes ----------------------------------------------------------------------------------------

THIRD = made_case(image="openmpi", size=8)
BASE: Medians = {SMALL: spread(1e-6), LARGE: spread(1e-4), THIRD: spread(1e-6)}
OTHER: Medians = {SMALL: spread(1.0001e-6), LARGE: spread(1.2e-4), THIRD: ["it hangs"] * 10}


def test_cells_are_counted_and_not_their_sides(here: Collbench, tmp_path: Path) -> None:
    wide = [time * (1 + number % 2) for number, time in enumerate(spread(1e-6))]
    done = here("gate", made_gate(tmp_path / "gate", {SMALL: wide}, {SMALL: spread(1e-6)}))
    assert "in 1 of 1 cell " in done.out


def test_every_form_accounts_for_every_cell(here: Collbench, tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", BASE, OTHER)
    printed = json.loads(here("gate", folder, "--style", "json").out)
    assert printed == document_in(str(folder))
    assert [printed[name] for name in ("planned", "broken", "lost", "no_loss", "not_answered")] == [3, 1, 1, 1, 0]
    assert [(cell["name"], cell["answer"], cell["reason"]) for cell in printed["cells"]] == [
        ("allreduce 64", "no loss", None), ("allreduce 64K", "loss", None), ("allreduce 8", "broken", "broken")
    ]  # fmt: skip
    assert printed["exit_code"] == 1
    suite = ElementTree.parse(folder / "gate.xml").getroot()[0]  # noqa: S314 - our own
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "timestamp", "time")} == {
        "tests": "3", "failures": "2", "errors": "0", "skipped": "0", "timestamp": "2026-01-01T00:00:00",
        "time": "0.223000",
    }  # fmt: skip
    cases = {case.get("name"): (case.get("time"), [child.tag for child in case]) for case in suite.iter("testcase")}
    # 10 launches a side, each of 100 samples of 1 us
    assert cases["allreduce 64"] == ("0.002000", ["system-out"])
    assert cases["allreduce 64K"][1] == cases["allreduce 8"][1] == ["failure"]
    for style in ("csv", "markdown", "latex"):
        assert here("gate", folder, "--style", style, "--all").out.count("allreduce") >= 3


def test_an_answer_that_cannot_be_printed_is_no_loss(tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", fine(), fine())
    command = [sys.executable, "-m", "collbench", "gate", str(folder)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
    assert (ended.returncode, "no answer" in ended.stderr) == (4, True), ended


def of_cells(cases: list[Case], state: str, text: str = "why", **fields: Any) -> Judgement:
    """A judgement of cells that nobody measured; `fields` are others of its own."""
    doubt = Doubt("skipped", ("base", text)) if state == "no answer" else None
    answers = tuple(Answer(case, case, None, state, 0.02, doubt) for case in cases)  # type: ignore[arg-type]
    variables = fields.pop("variables", {})
    sides = (GateSide("base", Side(variables=variables), {}, ()), GateSide("other", Side(), {}, ()))
    return Judgement(GatePlan(plan="p", cells=tuple(cases)), sides, (Margin(0.02),), answers, **fields)


def many(number: int, state: str, text: str = "why") -> Judgement:
    return of_cells([made_case(image="openmpi", size=8 * (1 + index)) for index in range(number)], state, text)


@pytest.mark.parametrize("state", ["loss", "no answer"])
def test_a_comment_has_room_for_any_number_of_cells(state: str) -> None:
    judgement = many(10_000, state, "*" * 5_000)
    text = markdown(judgement, names_of(judgement.answers))
    assert len(text) < 60_000
    assert sum(line.startswith("| ") for line in text.splitlines()) == 2 + MOST_ROWS
    assert "10000 cells" in text
    for every, rows in ((False, MOST_ROWS), (True, 10_000)):
        assert len(tables(judgement, names_of(judgement.answers), every=every)[1].rows) == rows


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
    refused = (Cause("flaw", (Flaw("unreadable", Path(text), (1, 1, 1, text)),)),)
    cases = [made_case(image=text[:60]), SMALL]
    judgement = of_cells(cases, "no answer", text, refused=refused, variables={"A": text[:60]})
    written = markdown(judgement, names_of(judgement.answers))
    left = outside_code(written).replace("<details><summary>Reasons in full</summary>", "").replace("</details>", "")
    for live in ("@", "<", "&", "~", "http", "www", "#1", "GH-", "!", "[", ":smile", "$", "1234567890", "bold", "`"):
        assert live not in left, left
    rows = [line for line in written.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows} == {7}


def test_a_long_reason_is_shortened_where_people_read_and_whole_for_programs(here: Collbench, tmp_path: Path) -> None:
    long = "error: " + " ".join(f"word{number}" for number in range(600))
    folder = made_gate(tmp_path / "gate", fine(), {SMALL: [long] * 10, LARGE: spread(1e-4)})
    done = here("gate", folder)
    assert len(done.out) < 5 * LONGEST_LINE and long not in done.out
    text = (folder / "gate.md").read_text()
    assert len(text.splitlines()[0]) < 220 and long in text
    error = next(ElementTree.parse(folder / "gate.xml").getroot().iter("failure"))  # noqa: S314 - our own
    assert len(error.get("message") or "") <= 200 and long in (error.text or "")
    written = document_in(str(folder))
    assert len(written["answer"]) <= 220 and written["cells"][0]["why"].endswith(long)
    assert long in here("gate", folder, "--style", "csv").out


@pytest.mark.parametrize(("number", "long"), [(1, ""), (12, "a name that is very long " * 3), (40, "x" * 300)])
def test_the_first_line_is_short_whatever_cells_are_called(tmp_path: Path, number: int, long: str) -> None:
    cases = [made_case(image=f"{long}{index}", size=8) for index in range(number)]
    base, other = ({case: spread(1e-6 * factor) for case in cases} for factor in (1, 1.5))
    judgement = judged(made_gate(tmp_path, base, other))
    assert len(sentence(judgement, names_of(judgement.answers))) <= 250


def test_hostile_text_stays_text() -> None:
    """A run is somebody's file: its texts break no table, no XML, and no terminal."""
    judgement = many(2, "no answer", "</error>\x00\x1b[31m\ud800\ufffe | <script>\n\u202e")
    names = names_of(judgement.answers)
    root = ElementTree.fromstring(junit(judgement, names))  # noqa: S314 - our own
    (message,) = {error.get("message") for error in root.iter("error")}
    assert message is not None
    assert message.startswith("base: </error>\\x00\\x1b[31m\\ud800\\ufffe | <script>")
    text = markdown(judgement, names)
    assert "<script>" not in outside_code(text) and "\\|" in text
    assert len(document(judgement, names)["cells"]) == 2


def test_cells_of_one_name_get_numbers() -> None:
    answers = of_cells([made_case(image="openmpi"), made_case(image="openmpi")], "no answer").answers
    names = names_of(answers)
    assert [names.of(answer) for answer in answers] == ["allreduce (1) 1K", "allreduce (2) 1K"]


def test_every_doubt_and_every_cause_has_words() -> None:
    assert {*NAMES, *get_args(get_type_hints(Cause)["kind"])} == WORDS.keys()
