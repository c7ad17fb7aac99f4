"""Results that must come out equal: where they differ, `compare`, its JSON and the page say so first of all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import launches_of, program
from tests.unit.made_runs import experiment, image, spread, write_run

from collbench.analysis.baseline import keep, load
from collbench.analysis.results import joined
from collbench.analysis.runs import gather, observe
from collbench.report import new_style
from collbench.report.styles import fields_of
from collbench.schema.case import Case
from collbench.schema.record import Record, ResultCheck, Work
from collbench.schema.store import read_run

HOST = Case(
    workload="train", what={"network": "lstm", "measure": "batch"}, how={"threads": 1, "data": "made-up"}
).having(image="torch")
INSIDE = HOST.having(engine="docker", policy="multi", isolation="strict")
WORK = Work(amount=1, unit="batches")
DIFFER = "the same software should give the same, so the sides do not compute alike"


def launches(case: Case, losses: Sequence[float]) -> list[Record]:
    """Eight launches, whose losses are these in turns."""
    return [
        msgspec.structs.replace(
            record, check=ResultCheck(wrong=0, repeatable={"loss": losses[record.launch % len(losses)]})
        )
        for record in launches_of(case, spread(0.1, 8), work=WORK)
    ]


def run_of(path: Path, losses: Mapping[Case, Sequence[float]], **fields: Any) -> Path:
    return write_run(path, {case: launches(case, values) for case, values in losses.items()}, **fields)


def found(compare: Collbench, run: Path, *flags: str) -> tuple[list[str], list[Any]]:
    """Remarks on results that differ, as they are printed, and what the JSON has of them."""
    table = compare(run, "--by", "policy", *flags)
    printed = [line for line in table.out.splitlines() if "results differ" in line]
    document = json.loads(compare(run, "--by", "policy", "--style", "json", *flags).out)
    assert [note for note in document["notes"] if "results differ" in note] == [line.strip("* ") for line in printed]
    return printed, [one for entry in document["comparisons"] for one in entry["results_differ"]]


def test_equal_results_are_not_mentioned(tmp_path: Path, compare: Collbench) -> None:
    assert found(compare, run_of(tmp_path / "run", {HOST: [9.21034], INSIDE: [9.21034]})) == ([], [])


def test_other_results_are_a_finding_once_for_all_measures(tmp_path: Path, compare: Collbench) -> None:
    losses = {HOST: [9.21034], INSIDE: [9.21041]}
    both = losses | {case.having(measure="first"): values for case, values in losses.items()}
    printed, entries = found(compare, run_of(tmp_path / "run", both))
    assert [line.strip("* ") for line in printed] == [
        f"results differ: loss 9.21034 (host), 9.21041 (multi strict); {DIFFER}"]  # fmt: skip
    failing = compare(tmp_path / "run", "--by", "policy", "--fail-on", "faster")
    assert failing.code == 1 and "2 with results that differ" in failing.err
    assert entries == 2 * [{"name": "loss", "base": [9.21034], "other": [9.21041]}]


def test_the_row_is_named_among_several(tmp_path: Path, compare: Collbench) -> None:
    losses: dict[Case, Sequence[float]] = {HOST: [9.21034], INSIDE: [9.21034]}
    losses |= {HOST.having(network="fcn5"): [2.3], INSIDE.having(network="fcn5"): [2.4]}
    (line,), _ = found(compare, run_of(tmp_path / "run", losses))
    assert "results differ, network fcn5: loss 2.3 (host), 2.4 (multi strict);" in line


def test_launches_of_one_side_that_differ_are_a_finding_too(tmp_path: Path, compare: Collbench) -> None:
    (line,), _ = found(compare, run_of(tmp_path / "run", {HOST: [1, 2, 3, 4], INSIDE: [1]}))
    assert "loss 1 and 2 and 3 and 1 more (host), 1 (multi strict)" in line


def test_more_threads_or_other_software_may_give_others(tmp_path: Path, compare: Collbench) -> None:
    run = run_of(tmp_path / "run", {HOST: [1], HOST.having(threads=2): [2]})
    shown = compare(run, "--by", "threads")
    assert shown.code == 0 and "results differ" not in shown.out
    again = run_of(tmp_path / "again", {HOST: [1, 3], HOST.having(threads=2): [2]})
    assert "loss 1 and 3 (1), 2 (2)" in compare(again, "--by", "threads").out
    stacks = [
        image("torch", libraries=(program(version, name="torch", used_by=("train data=made-up",)),)) for version in "12"
    ]
    made = experiment((), images=stacks[:1], environments=stacks[1:])
    other = run_of(tmp_path / "other", {HOST: [1], INSIDE: [2]}, experiment=made)
    refused = compare(other, "--by", "policy")
    assert refused.code == 2 and "library: torch 2 against torch 1" in refused.err
    for flags in (("--by", "library"), ("--by", "policy", "--ignore", "library")):
        shown = compare(other, *flags)
        assert shown.code == 0 and "results differ" not in shown.out, shown.err


def test_a_baseline_and_a_folder_of_launches_keep_them(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {HOST: [1, 2], INSIDE: [1]})
    keep(observe(run), tmp_path / "baseline.json")
    both = gather(tmp_path, [run, run_of(tmp_path / "more", {HOST: [3]})])
    for observed, of_host in ((load(tmp_path / "baseline.json"), {1, 2}), (both, {1, 2, 3})):
        assert {case.where.policy: cell.repeatable["loss"] for case, cell in observed.cells.items()} == {
            "host": of_host, "multi": {1}}  # fmt: skip


def test_cells_that_are_put_together_have_the_results_of_both(tmp_path: Path) -> None:
    one, two = (observe(run_of(tmp_path / str(loss), {HOST: [loss]})).cells for loss in (1.0, 2.0))
    assert joined([(one, 0), (two, 10)])[HOST].repeatable == {"loss": {1.0, 2.0}}


def test_the_page_says_it_in_its_answer_and_below_the_table(tmp_path: Path, here: Collbench) -> None:
    run, out = run_of(tmp_path / "run", {HOST: [9.21034], INSIDE: [9.21041]}), tmp_path / "page.html"
    told = here("report", run, "-o", out)
    assert told.code == 0, told.err
    text = unescape(out.read_text(encoding="utf-8"))
    assert f"train: results differ: loss 9.21034 (host), 9.21041 (multi strict); {DIFFER}" in text
    assert text.count("results differ: loss") == 2


@pytest.mark.parametrize("style", ["table", "csv"])
def test_records_show_them_with_the_digits_that_are_compared(tmp_path: Path, style: str) -> None:
    run = read_run(run_of(tmp_path / "run", {HOST: [9.21034]}))
    if style == "csv":
        assert fields_of(run.records[0])["figures"] == "loss=9.21034"
        return
    printer = new_style(style)
    text = printer.begin(run.manifest) + printer.add(run.records[0]) + printer.end()
    assert "loss" in text and "9.21034" in text
