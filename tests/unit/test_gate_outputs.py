"""What a gate prints and writes: every planned cell is in each of them, losses first, and nothing passes by mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints
from xml.etree import ElementTree

import pytest
from tests.processes import LIMIT
from tests.unit.conftest import Collbench
from tests.unit.made_gates import LARGE, SMALL, Medians, fine, made_gate
from tests.unit.made_runs import made_case, spread
from tests.unit.test_gate import judged

from collbench.analysis.gate import NAMES, Cause, Doubt, GateSide, Judgement
from collbench.analysis.gate import Answer as GateAnswer
from collbench.analysis.runs import Flaw
from collbench.report.gate import LONGEST_LINE, MOST_ROWS, WORDS, document, junit, markdown, names_of, sentence, tables
from collbench.schema.plan import Side
from collbench.schema.store import GatePlan, Margin

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
    answers = tuple(
        GateAnswer(case, case, None, state, 0.02, doubt if state == "no answer" else None) for case in cases
    )  # type: ignore[arg-type]
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
