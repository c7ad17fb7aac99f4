"""What a gate prints and writes: every planned cell is in each of them, losses first, and nothing passes by mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.processes import LIMIT
from tests.unit.conftest import Collbench
from tests.unit.made_gates import LARGE, SMALL, Medians, fine, made_gate, noisy, told
from tests.unit.made_runs import made_case, spread
from tests.unit.test_gate import judged

from collbench.analysis.gate.answers import Answer, Judgement
from collbench.analysis.gate.doubts import Doubt
from collbench.report.gate.document import document
from collbench.report.gate.junit import junit
from collbench.report.gate.markdown import LONGEST, markdown
from collbench.report.gate.names import names_of
from collbench.report.gate.sentence import sentence
from collbench.report.gate.tables import tables
from collbench.schema.gate_plan import GatePlan, Side

THIRD = made_case(image="openmpi", size=8)
BASE: Medians = {SMALL: spread(1e-6), LARGE: spread(1e-4), THIRD: spread(1e-6)}
OTHER: Medians = {SMALL: spread(1.0001e-6), LARGE: spread(1.2e-4), THIRD: ["it hangs"] * 10}


def said(found: Judgement) -> str:
    return sentence(found, names_of(found.answers))


def test_the_sentence_of_a_loss_names_it_and_counts_the_rest(tmp_path: Path) -> None:
    assert said(judged(made_gate(tmp_path, BASE, OTHER))) == (
        "gate: 1 loss beyond 2 % in 3 cells: allreduce 64K +20.0 % (+20.0 .. +20.0); 1 without a loss; 1 not answered "
        "(broken: other alone: failed in 10 of 10 launches: it hangs)"
    )


def test_the_sentence_of_a_pass_names_what_came_nearest_to_a_loss(tmp_path: Path) -> None:
    found = judged(made_gate(tmp_path, fine(), {**fine(), LARGE: spread(1.004e-4)}))
    assert said(found) == (
        "gate: no loss beyond 2 % in 2 cells (10 launches a side; worst allreduce 64K +0.4 % (+0.4 .. +0.4))"
    )


def test_the_sentence_without_an_answer_says_why(tmp_path: Path) -> None:
    other: Medians = {SMALL: noisy(1e-6), LARGE: told(LARGE, spread(1e-4), contended=True)}
    assert said(judged(made_gate(tmp_path, fine(), other))) == (
        "gate: no answer: 2 of 2 cells not answered (1 too few launches, 1 contended; about 16 more launches "
        "would tell)"
    )


def test_losses_come_first_in_every_form(here: Collbench, tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", BASE, OTHER)
    found = here("gate", folder, "--all")
    assert found.code == 1
    assert [line.split("  ")[0] for line in found.out.splitlines() if line.startswith(("loss", "no "))] == [
        "loss", "no answer", "no loss"
    ]  # fmt: skip
    text = (folder / "gate.md").read_text()
    assert 0 < text.index("### Losses: 1") < text.index("### Not answered: 1") < text.index("No loss: 1")
    assert "3 cells planned: 1 lost, 1 without a loss, 1 not answered; exit code 1" in text


def test_junit_has_a_test_case_for_each_cell(here: Collbench, tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", BASE, OTHER)
    here("gate", folder)
    suite = ElementTree.parse(folder / "gate.xml").getroot()[0]  # noqa: S314 - our own
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3", "failures": "1", "errors": "1"
    }  # fmt: skip
    outcomes = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert outcomes == {"allreduce 64": ["system-out"], "allreduce 64K": ["failure"], "allreduce 8": ["error"]}


def test_the_document_accounts_for_every_cell(here: Collbench, tmp_path: Path) -> None:
    folder = made_gate(tmp_path / "gate", BASE, OTHER)
    printed = json.loads(here("gate", folder, "--style", "json").out)
    assert printed == json.loads((folder / "gate.json").read_text())
    assert (printed["planned"], printed["lost"], printed["no_loss"], printed["not_answered"]) == (3, 1, 1, 1)
    assert [(cell["name"], cell["answer"], cell["reason"]) for cell in printed["cells"]] == [
        ("allreduce 64", "no loss", None), ("allreduce 64K", "loss", None), ("allreduce 8", "no answer", "broken")
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
    assert (ended.returncode, "gate: no answer: " in ended.stderr) == (4, True), ended


def many(number: int, state: str, text: str = "why") -> Judgement:
    """So many cells that nobody measured."""
    cases = [made_case(image="openmpi", size=8 * (1 + index)) for index in range(number)]
    plan = GatePlan(plan="p", base=Side(), other=Side(), cells=tuple((case, case) for case in cases))
    doubt = Doubt("missing", text)
    answers = tuple(Answer(case, case, None, state, doubt if state == "no answer" else None) for case in cases)  # type: ignore[arg-type]
    return Judgement(plan, 0.02, answers)


@pytest.mark.parametrize("state", ["loss", "no answer"])
def test_a_comment_has_room_for_any_number_of_cells(state: str) -> None:
    found = many(10_000, state, "*" * 5_000)
    text = markdown(found, names_of(found.answers))
    assert len(text) < 60_000
    assert len(text) > LONGEST / 2
    assert "10000 cells planned" in text
    assert "of which" in text


def test_hostile_text_stays_text() -> None:
    """A run is somebody's file: its texts break no table, no XML, and no terminal."""
    found = many(2, "no answer", "</error>\x00\x1b[31m\ud800\ufffe | <script>\n\u202e")
    names = names_of(found.answers)
    root = ElementTree.fromstring(junit(found, names))  # noqa: S314 - our own
    (message,) = {error.get("message") for error in root.iter("error")}
    assert message is not None
    assert message.startswith("</error>\\x00\\x1b[31m\\ud800\\ufffe | <script>")
    text = markdown(found, names)
    assert "<script>" not in text
    assert "\\|" in text
    assert len(document(found, names)["cells"]) == 2


def test_cells_of_one_name_get_numbers() -> None:
    cases = [made_case(image="openmpi"), made_case(image="openmpi")]
    answers = tuple(Answer(case, case, None, "no answer", Doubt("missing", "")) for case in cases)
    names = names_of(answers)
    assert [names.of(one) for one in answers] == ["allreduce (1) 1K", "allreduce (2) 1K"]


def test_a_table_has_few_rows_unless_all_are_asked_for() -> None:
    found = many(100, "no answer")
    names = names_of(found.answers)
    assert len(tables(found, names)[1].rows) == 20
    assert len(tables(found, names, every=True)[1].rows) == 100
