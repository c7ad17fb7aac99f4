"""`collbench history` on made-up nights: what it answers, what it leaves out, when it fails, and its page."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_history import FIRST, night, steps, write_history
from tests.unit.made_program_runs import launches_of, program_case
from tests.unit.made_runs import (
    Entry,
    experiment,
    host,
    library,
    made_case,
    made_failure,
    made_record,
    write_launches,
    write_run,
)

from collbench.analysis import history as history_module
from collbench.analysis.runs import Observed, observe
from collbench.schema.record import ResultCheck, Work

SMALL, MIDDLE, LARGE = (made_case(size=size) for size in (1024, 4096, 16384))
QUIET = steps((1e-5, 20))
STEP = steps((1e-5, 12), (1.2e-5, 8))


@pytest.fixture
def history(here: Collbench) -> Collbench:
    """`history(*arguments)`: the command in this process."""
    return lambda *arguments: here("history", *arguments)


def newer(first: int) -> Any:
    """From this night on a newer library."""
    return lambda number: {"libraries": (library(version="5.0.8" if number < first else "5.0.9"),)}


def document(history: Collbench, *arguments: object) -> Any:
    """What the command says for programs."""
    return json.loads(history(*arguments, "--style", "json").out)


def test_what_changed_with_one_run_is_one_event_with_the_library_that_changed(
    history: Collbench, tmp_path: Path
) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET, MIDDLE: STEP, LARGE: STEP}, newer(12), launches=7)
    found = document(history, path)
    (event,) = found["events"]
    assert (event["run"], event["before"], event["verdict"]) == (12, 11, "slower")
    assert event["cells"] == ["allreduce sum float32, 4K", "allreduce sum float32, 16K"]
    assert event["facts"] == {"12": {"library": "Open MPI 5.0.8 -> 5.0.9"}}
    (change,) = found["cells"][1]["changes"]
    assert change["ratio"]["value"] == pytest.approx(1.2, rel=0.01) and change["run"] == 12
    assert change["ratio"]["interval"][0] < 1.2 < change["ratio"]["interval"][1] and change["p_adjusted"] <= 0.05
    rows = [line for line in history(path, "--all").out.splitlines() if line.startswith(night(12))]
    assert sum("12 and 8" in row and "12 us" in row for row in rows) == 2


def test_no_change_and_too_few_runs(history: Collbench, tmp_path: Path) -> None:
    quiet = document(history, write_history(tmp_path / "quiet", {SMALL: QUIET}))
    assert (quiet["events"], len(quiet["cells"]), len(quiet["runs"])) == ([], 1, 20)
    assert quiet["correlation"]["dependence"] in ("none", "unknown") and quiet["correlation"]["limit"] < 0.6
    young = document(history, write_history(tmp_path / "young", {SMALL: QUIET[:5]}))
    assert not young["cells"][0]["tested"] and young["correlation"]["dependence"] == "unknown"
    mixed = document(history, write_history(tmp_path / "mixed", {SMALL: QUIET, LARGE: [*[None] * 15, *QUIET[:5]]}))
    assert [cell["tested"] for cell in mixed["cells"]] == [True, False]


def test_runs_are_taken_in_the_order_in_which_they_began(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: STEP})
    for number in range(20):
        (path / night(number)).rename(path / f"run-{(number * 7) % 20:02d}")
    found = document(history, path)
    assert [run["started"] for run in found["runs"]] == sorted(run["started"] for run in found["runs"])
    assert found["runs"][0]["started"] == FIRST.isoformat()
    assert [event["run"] for event in found["events"]] == [12]
    assert found["runs"][12]["name"] == f"run-{12 * 7 % 20:02d}"


def test_sizes_that_are_neighbours_are_a_range_and_two_changes_two_lines(history: Collbench, tmp_path: Path) -> None:
    sizes = [made_case(size=1024 << number) for number in range(6)]
    slower = dict.fromkeys(sizes[1:4], steps((1e-5, 10), (1.1e-5, 14)))
    faster = {sizes[5]: steps((1e-5, 17), (8e-6, 7))}
    path = write_history(tmp_path / "n", {sizes[0]: steps((1e-5, 24)), **slower, sizes[4]: steps((1e-5, 24)), **faster})
    found = document(history, path)
    assert [(event["run"], event["verdict"], len(event["cells"])) for event in found["events"]] == [
        (17, "faster", 1), (10, "slower", 3)
    ]  # fmt: skip
    assert "2K..8K" in history(path).out


def test_another_machine_is_another_series(history: Collbench, tmp_path: Path) -> None:
    """Its times are not joined with those before; a newer kernel is marked, and joins them."""
    moved = write_history(tmp_path / "moved", {SMALL: STEP}, lambda number: {
        "hosts": (host(cpu="EPYC 7003" if number < 12 else "Xeon"),)})  # fmt: skip
    found = document(history, moved)
    assert (found["events"], len(found["runs"])) == ([], 20)
    assert [(cell["machine"], cell["missing"]) for cell in found["cells"]] == [
        ("EPYC 7003, 4 cores", None), ("Xeon, 4 cores", None)
    ]  # fmt: skip
    kernel = write_history(tmp_path / "kernel", {SMALL: STEP}, lambda number: {
        "hosts": (host(kernel="6.1.0" if number < 12 else "6.6.2"),)})  # fmt: skip
    assert document(history, kernel)["events"][0]["facts"] == {"12": {"kernel": "6.1.0 -> 6.6.2"}}


def test_another_way_of_measuring_and_other_work_do_not_belong_to_a_series(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    for number in (3, 4, 5):
        odd = made_record(SMALL, 0, 2e-5, gate="barrier")
        write_run(path / f"odd-{number}", {SMALL: [odd]}, created=FIRST.replace(day=number, hour=9).isoformat())
    found = json.loads(history(path, "--style", "json").out)
    (cell,) = found["cells"]
    assert len(cell["points"]) == 20 and found["events"] == []
    assert {(gap["lacks"]["kind"], gap["lacks"]["detail"]) for gap in cell["gaps"]} == {("another way", "gate barrier")}


def test_launches_that_tell_no_time_are_no_time(history: Collbench, tmp_path: Path) -> None:
    """Wrong results, a median of 0, other work, and programs whose cores others used; the rest of a run counts."""
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    odd: list[list[Entry]] = [
        [made_record(SMALL, 0, 1e-5, check=ResultCheck(wrong=1)), 1e-5], [0.0, 1e-5, 1e-5], [0.0],
        [made_record(SMALL, 0, 1e-5, work=Work(amount=2048, count=512, bus_factor=1.0))],
    ]  # fmt: skip
    for number, entries in enumerate(odd):
        write_run(path / f"odd-{number}", {SMALL: entries}, created=FIRST.replace(hour=3 + number).isoformat())
    (cell,) = json.loads(history(path, "--style", "json").out)["cells"]
    assert [gap["lacks"] for gap in cell["gaps"]] == [
        {"kind": "wrong results", "detail": "", "launches": 1}, {"kind": "not resolved", "detail": "", "launches": 0},
        {"kind": "other work", "detail": "2048 bytes", "launches": 0},
    ]  # fmt: skip
    assert [point["time"]["n"] for point in cell["points"]][:2] == [1, 2]
    used = launches_of(program_case(), [1e-3, 2e-3, 1e-3], contended=[1])
    write_run(tmp_path / "p" / "a", {program_case(): used}, experiment=experiment(["tools"]))
    (cell,) = json.loads(history(tmp_path / "p", "--style", "json").out)["cells"]
    assert (cell["points"][0]["time"]["value"], cell["points"][0]["time"]["n"]) == (1e-3, 2)


def test_another_build_of_a_library_is_told_by_its_hash(history: Collbench, tmp_path: Path) -> None:
    """Of another version the hash says nothing more."""

    def built(number: int) -> dict[str, Any]:
        return {"libraries": (library(version="5.0.8", sha256=("a" if number < 12 else "b") * 64),)}

    (event,) = document(history, write_history(tmp_path / "build", {SMALL: STEP}, built))["events"]
    assert event["facts"] == {"12": {"library-file": "sha256 aaaaaaaaaaaa -> bbbbbbbbbbbb"}}
    both = write_history(tmp_path / "both", {SMALL: STEP}, lambda number: {
        "libraries": (library(version=str(number >= 12), sha256=("a" if number < 12 else "b") * 64),)})  # fmt: skip
    assert "library-file" not in history(both).out


def test_waves_are_no_changes_and_said_to_be_there(history: Collbench, tmp_path: Path) -> None:
    cells = [made_case(size=1024 << number) for number in range(4)]
    waves = [1e-5 * (1 + 0.03 * math.sin(number / 1.5)) for number in range(40)]
    waving = document(history, write_history(tmp_path / "waves", dict.fromkeys(cells, waves)))
    assert (waving["events"], waving["correlation"]["dependence"]) == ([], "alike")
    assert waving["correlation"]["estimate"] > 0.5


def test_what_changes_in_many_runs_explains_nothing(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: STEP}, lambda number: {
        "hosts": (host(name=f"node{number % 3}", boot_id=str(number)),)})  # fmt: skip
    found = document(history, path)
    assert [event["facts"] for event in found["events"]] == [{}] and found["environment"] == []


def test_failures_are_shown_and_do_not_end_a_series(history: Collbench, tmp_path: Path) -> None:
    times: list[float | str | None] = [*STEP[:6], "died: a", *STEP[7:19], "died: b"]
    path = write_history(tmp_path / "n", {SMALL: times, LARGE: QUIET})
    found = document(history, path)
    assert [event["cells"] for event in found["events"]] == [["allreduce sum float32, 1K"]]
    gaps = [(gap["run"], *gap["lacks"].values(), gap["measured"]) for gap in found["cells"][0]["gaps"]]
    assert gaps == [(6, "failed", "died: a", 0, False), (19, "failed", "died: b", 0, False)]
    assert any("died: b" in note for note in found["notes"])
    assert "2 runs, the latest 2026-10-20: failed: died: b" in history(path, "--all").out


def test_a_cell_that_later_runs_lack_is_named(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET, LARGE: QUIET[:15], MIDDLE: QUIET})
    assert [cell["missing"] for cell in document(history, path)["cells"]] == [None, 15, None]
    turns = {SMALL: [time if number % 2 else None for number, time in enumerate(QUIET)],
             LARGE: [None if number % 2 else time for number, time in enumerate(QUIET)]}  # fmt: skip
    found = document(history, write_history(tmp_path / "turns", turns))
    assert [cell["missing"] for cell in found["cells"]] == [None, None]


def test_folders_that_are_no_runs_are_named_and_no_traceback(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: STEP})
    (path / "logs").mkdir()
    (path / ".git").mkdir()
    (path / "README").write_text("x")
    damaged = write_run(path / "damaged", {SMALL: [1e-5]}) / "records.jsonl"
    damaged.write_text("{}\n")
    undated = write_run(path / "undated", {SMALL: [1e-5]}, created="yesterday")
    write_run(path / "empty", {})
    (path / "latest").symlink_to(path / night(19))
    found = history(path, "--all")
    assert found.code == 0
    for said in ("logs: neither a run", "damaged/records.jsonl line 1", "empty: no records"):
        assert said in found.out
    assert undated.name not in found.err
    shown = document(history, path)
    assert len(shown["left_out"]) == 5 and not any(".git" in why or "README" in why for why in shown["left_out"])
    assert (len(shown["runs"]), len(shown["events"])) == (20, 1)


def test_a_folder_of_launches_is_one_run(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    write_launches(path / "last", {SMALL: [1e-5] * 7}, created=FIRST.replace(month=12).isoformat())
    cell = document(history, path)["cells"][0]
    assert cell["points"][-1]["time"]["n"] == 7 and cell["points"][-1]["time"]["interval"] is not None
    assert len(cell["points"]) == 21


def test_a_folder_of_nights_is_not_taken_for_one_run(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    write_history(path / "months" / "9", {SMALL: QUIET[:3]})
    (path / "months" / "9").rename(path / "september")
    (why,) = [why for why in document(history, path)["left_out"] if "september" in why]
    assert "its 3 runs" in why and "no launches of one run" in why
    many = made_case(image="a")
    write_run(path / "both" / "a", {many: [1e-5] * 3})
    write_run(path / "both" / "b", {many: [1e-5] * 3})
    assert any("both: its 2 runs have many launches each" in why for why in document(history, path)["left_out"])


def test_refusals_end_with_2_and_say_what_would_work(history: Collbench, tmp_path: Path) -> None:
    def refusal(*arguments: object) -> str:
        found = history(*arguments)
        assert (found.code, found.out) == (2, "")
        return found.err

    path = write_history(tmp_path / "n", {SMALL: QUIET})
    (tmp_path / "nothing").mkdir()
    assert "no run in it." in refusal(tmp_path / "nothing")
    assert "not a folder" in refusal(tmp_path / "none")
    assert "this is one run. Name the folder that holds it" in refusal(path / night(0))
    assert "neither a run nor a date (2026-11-03). Did you mean" in refusal(path, "--since", "2026-10-xx")
    assert "must end in .html" in refusal(path, "-o", tmp_path / "page.pdf")
    assert "unknown factor" in refusal(path, "--given", "polcy=x")
    assert "leaves nothing" in refusal(path, "--given", "policy=multi")


def test_given_keeps_the_cells_with_that_value(history: Collbench, tmp_path: Path) -> None:
    cells = {made_case(image="a"): QUIET, made_case("multi", "strict", image="a"): STEP}
    path = write_history(tmp_path / "n", cells)
    assert len(document(history, path)["events"]) == 1
    found = document(history, path, "--given", "policy=host")
    assert (found["events"], len(found["cells"])) == ([], 1)


@pytest.mark.parametrize(
    ("times", "slower", "faster", "different"),
    [(QUIET, 0, 0, 0), (STEP, 1, 0, 1), (STEP[::-1], 0, 1, 1),
     (steps((1e-5, 8), (1.2e-5, 8), (1e-5, 8)), 0, 1, 1),  # mended
     (steps((1e-5, 8), (1.3e-5, 8), (1.2e-5, 8)), 1, 1, 1),  # mended in part
     (steps((1e-5, 8), (8e-6, 8), (9e-6, 8)), 1, 1, 1)],  # a gain that was lost in part
)  # fmt: skip
def test_exit_codes_by_the_level_now(
    history: Collbench, tmp_path: Path, times: list[float], slower: int, faster: int, different: int
) -> None:
    path = write_history(tmp_path / "n", {SMALL: times})
    codes = [history(path, "--fail-on", what).code for what in ("slower", "faster", "different")]
    assert codes == [slower, faster, different]
    assert history(path).code == 0


def test_since_leaves_out_what_changed_before(history: Collbench, tmp_path: Path) -> None:
    path = write_history(tmp_path / "n", {SMALL: steps((1e-5, 10), (1.2e-5, 10), (1.1e-5, 10))})
    assert history(path, "--fail-on", "slower").code == 1
    for since in (night(10), f"{path}/{night(10)}", "2026-10-05T00:00:00"):
        assert history(path, "--fail-on", "slower", "--since", since).code == 1
    later = history(path, "--fail-on", "slower", "--since", night(11))
    assert later.code == 0 and len(document(history, path, "--since", night(11))["events"]) == 1
    found = document(history, path, "--since", night(21))
    assert (found["events"], len(found["cells"])) == ([], 1)
    assert document(history, path, "--since", "2027-01-01")["answer"] == "no run since then"


def test_a_check_never_passes_on_what_was_not_measured(history: Collbench, tmp_path: Path) -> None:
    failed = write_history(tmp_path / "failed", {SMALL: [*QUIET[:19], "died"], LARGE: QUIET})
    found = history(failed, "--fail-on", "slower")
    assert found.code == 1
    assert "--fail-on slower: 1 cell not measured in the latest run" in found.err
    gone = write_history(tmp_path / "gone", {SMALL: QUIET[:19], LARGE: QUIET, MIDDLE: QUIET})
    assert history(gone, "--fail-on", "slower").code == 1
    young = history(write_history(tmp_path / "young", {SMALL: QUIET[:5]}), "--fail-on", "slower")
    assert young.code == 1 and "too few runs to judge any cell" in young.err


def test_what_every_run_skipped_fails_no_check_and_what_one_skipped_does(history: Collbench, tmp_path: Path) -> None:
    nights = [night(number) for number in range(10)]
    for number, name in enumerate(nights):
        skipped = made_failure(LARGE, 0, "no room", status="skipped")
        last = made_failure(MIDDLE, 0, "no room", status="skipped") if number == 9 else 1e-5
        made = FIRST.replace(day=1 + number).isoformat()
        write_run(tmp_path / "n" / name, {SMALL: [1e-5], MIDDLE: [last], LARGE: [skipped]}, created=made)
    found = history(tmp_path / "n", "--fail-on", "slower")
    assert found.code == 1 and "1 cell not measured in the latest run" in found.err
    gaps = [cell["gaps"][-1] for cell in document(history, tmp_path / "n")["cells"] if cell["gaps"]]
    assert [(gap["run"], gap["lacks"]["kind"]) for gap in gaps] == [(9, "skipped"), (9, "skipped")]
    later = history(tmp_path / "n", "--fail-on", "slower", "--since", "2027-01-01")
    assert later.code == 1 and "no run since then" in later.err


@pytest.mark.parametrize("style", ["table", "markdown", "csv", "latex", "json"])
def test_every_style_with_hostile_names(history: Collbench, tmp_path: Path, style: str) -> None:
    path = write_history(tmp_path / "a|b<script>\x1b[31m", {made_case(image="x|<b>\x1b[31my"): STEP})
    found = history(path, "--style", style, "--all")
    assert found.code == 0 and "\x1b" not in found.out + found.err
    if style == "csv":
        head, *rows = csv.reader(io.StringIO(found.out))
        assert {len(row) for row in rows} == {len(head)} and "difference low" in head


def test_a_page_has_a_plot_for_each_cell_and_escapes_names(history: Collbench, tmp_path: Path) -> None:
    times = {made_case(image="<script>x</script>", size=size): of for size, of in ((1024, STEP), (4096, QUIET))}
    path, page = write_history(tmp_path / "n", times, launches=7), tmp_path / "page.html"
    found = history(path, "-o", page)
    assert found.code == 0 and "page.html" in found.err
    text = page.read_text()
    assert text.count('<svg class="plot"') == 2  # what changed, what did not
    assert f"<li>{document(history, path)['answer']}</li>" in text
    assert "<script>" not in text and text.count("var(--worse)") > 0
    assert "1 cell that changed" in text and "1 cell without a change" in text


def test_every_change_has_a_row_with_all_and_on_the_page(history: Collbench, tmp_path: Path) -> None:
    cells = [made_case(size=1024 * (1 + number)) for number in range(23)]
    path, page = write_history(tmp_path / "n", dict.fromkeys(cells, STEP)), tmp_path / "page.html"
    found = history(path, "-o", page)
    rows = [line for line in found.out.splitlines() if line.startswith(night(12))]
    assert len(rows) == 1 and "all sizes" in rows[0]
    assert len([line for line in history(path, "--all").out.splitlines() if line.startswith(night(12))]) == 23
    assert "<td>23K</td>" in page.read_text()


def test_a_page_without_a_change_and_with_too_few_runs(history: Collbench, tmp_path: Path) -> None:
    path, page = write_history(tmp_path / "n", {SMALL: QUIET[:4]}), tmp_path / "page.html"
    assert history(path, "-o", page).code == 0
    assert document(history, path)["answer"] in page.read_text()


def test_a_folder_that_cannot_be_read_is_left_out(
    history: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_history(tmp_path / "n", {SMALL: QUIET})
    (path / "closed").mkdir()

    def refusing(folder: Path) -> Observed:
        if folder.name == "closed":
            raise PermissionError(13, "Permission denied", str(folder / "inner"))
        return observe(folder)

    monkeypatch.setattr(history_module, "observe", refusing)
    answer = history(path, "--all")
    assert answer.code == 0
    assert "closed/inner: Permission denied" in answer.out
