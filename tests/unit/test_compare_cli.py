"""The command compare: exit codes, messages, every style, baselines, checks, suggestions."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import (
    Entry,
    experiment,
    host,
    library,
    made_case,
    made_failure,
    made_manifest,
    made_record,
    spread,
    twin,
    write_launches,
    write_run,
)

from collbench.errors import to_install
from collbench.schema.case import Case
from collbench.schema.manifest import Until
from collbench.schema.record import ResultCheck, Samples, Work
from collbench.schema.store import RunWriter

HOSTILE = "a|b<script>&_%$#{~^}\\"
HOST, MULTI = (made_case(policy, step, image=HOSTILE) for policy, step in (("host", None), ("multi", "strict")))


@pytest.fixture
def launched(tmp_path: Path) -> Path:
    """Ten launches of two sizes on the host and in containers with a hostile name; one size failed in these."""
    large, failing = (
        made_case(case.where.policy, case.where.isolation, image=HOSTILE, size=65536) for case in (HOST, MULTI)
    )
    return write_run(tmp_path / "launched", {
        HOST: spread(10e-6), MULTI: spread(12e-6), large: spread(90e-6), failing: ["died: a|b"] * 10,
    })  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of one case, the second 20 % slower."""
    return tuple(write_run(tmp_path / name, {made_case(): spread(time)}) for name, time in (("a", 10e-6), ("b", 12e-6)))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("host_launches", "multi_launches", "said"),
    [(range(10), range(10), "10"), (range(12), range(8, 15), "4 of 12 and 7"), (range(7), range(1, 8), "6 of 7"),
     (range(3), range(3, 6), "3")],
)  # fmt: skip
def test_the_launches_of_a_row_are_those_that_count(
    compare: Collbench, tmp_path: Path, host_launches: range, multi_launches: range, said: str
) -> None:
    """Of the blocks, those with both sides; and where there are such, of how many launches."""
    sides = {made_case(image="a"): host_launches, made_case("multi", "strict", image="a"): multi_launches}
    cells = {case: [1e-5 if launch in there else None for launch in range(15)] for case, there in sides.items()}
    found = compare(write_run(tmp_path / "run", cells), "--by", "policy", "--style", "csv")
    (row,) = csv.DictReader(io.StringIO(found.out))
    assert row["launches"] == said


def test_two_runs_in_a_table_for_people(compare: Collbench, runs: tuple[Path, Path]) -> None:
    found = compare(*runs, "--all")
    assert (found.code, found.err) == (0, "")
    assert "allreduce sum float32, backend mpi, driver native" in found.out
    assert "+20.0" in found.out and "slower" in found.out and "verdicts: 1 slower" in found.out
    document = json.loads(compare(*runs, "--style", "json").out)
    assert " ".join(found.out.split()).startswith(document["answer"])
    (one,) = document["comparisons"]
    assert (one["verdict"], one["blocks"]) == ("slower", False)


def test_json_has_every_number_and_null_where_there_is_none(compare: Collbench, launched: Path) -> None:
    document = json.loads(compare(launched, "--by", "policy", "--margin", "3%", "--style", "json").out)
    assert set(document) == {"margin", "comparisons", "notes", "doubts", "answer"}
    assert document["doubts"] == [] and "failed: died: a|b" in " ".join(document["notes"])
    assert document["margin"] == 0.03
    measured, failed = document["comparisons"]
    keys = {"base", "other", "ratio", "blocks", "sizes", "paper_diff_percent", "launches", "left_out", "contended",
            "results_differ", "slow", "verdict", "why",
            "launches_more"}  # fmt: skip
    assert set(measured) == set(failed) == keys
    assert measured["ratio"]["value"] == pytest.approx(1.2)
    assert measured["ratio"]["interval"][0] <= 1.2 <= measured["ratio"]["interval"][1]
    assert measured["paper_diff_percent"] == pytest.approx(-20.0)
    assert measured["base"]["case"]["where"].get("image") == HOSTILE
    assert measured["base"]["launches"] == 10
    assert (failed["verdict"], failed["why"]) == ("not comparable", "multi strict: failed: died: a|b")
    assert (measured["sizes"], failed["sizes"], failed["ratio"]) == (1, 0, None)
    assert failed["other"]["value"] is None and failed["base"]["value"] == pytest.approx(90e-6, rel=0.01)


def test_csv_is_rectangular_with_ends_of_intervals_in_columns_of_their_own(compare: Collbench, launched: Path) -> None:
    head, *rows = csv.reader(io.StringIO(compare(launched, "--by", "policy", "--style", "csv").out))
    assert len(rows) == 2 and {len(row) for row in rows} == {len(head)}
    assert len(set(head)) == len(head)
    first = dict(zip(head, rows[0], strict=True))
    assert first["image"] == HOSTILE
    assert float(first["difference low"]) <= 20 <= float(first["difference high"])
    assert (first["difference (%)"], first["verdict"], first["size (B)"]) == ("+20.0", "slower", "1K")
    assert float(first["base low"]) <= float(first["base (us)"]) <= float(first["base high"])
    assert rows[1][head.index("difference low")] == ""


def test_markdown_escapes_what_would_be_markup(compare: Collbench, launched: Path) -> None:
    out = compare(launched, "--by", "policy", "--style", "markdown").out
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert "<" not in out.replace("\\<script\\>", "")
    assert "a\\|b" in out
    bars = {line.replace("\\|", "").count("|") for line in lines}
    assert len(bars) == 1


def test_latex_escapes_what_would_be_commands(compare: Collbench, launched: Path) -> None:
    out = compare(launched, "--by", "policy", "--style", "latex").out
    assert out.count("\\begin{table}") == out.count("\\end{table}") == 1
    assert (
        "a|b\\textless{}script\\textgreater{}\\&\\_\\%\\$\\#\\{\\textasciitilde{}\\textasciicircum{}\\}\\textbackslash{}"
        in out
    )
    table = [line for line in out.splitlines() if line.endswith("\\\\")]
    assert len({line.replace("\\&", "").count("&") for line in table}) == 1
    assert "(%)" not in out.replace("\\%", "")


@pytest.mark.parametrize("formula", ["=1+1", "+cmd", "-x", "@y"])
def test_csv_holds_no_formula(compare: Collbench, tmp_path: Path, formula: str) -> None:
    cases = [made_case(case.where.policy, case.where.isolation, image=formula) for case in (HOST, MULTI)]
    run = write_run(tmp_path / "run", dict.fromkeys(cases, spread(1e-6)))
    head, row = csv.reader(io.StringIO(compare(run, "--by", "policy", "--style", "csv").out))
    assert row[head.index("image")] == f"'{formula}"


@pytest.mark.parametrize("style", ["table", "markdown", "csv", "latex", "json"])
def test_control_characters_of_a_run_do_not_reach_the_terminal(compare: Collbench, tmp_path: Path, style: str) -> None:
    cases = [made_case(case.where.policy, case.where.isolation, image="x\x1b[31my") for case in (HOST, MULTI)]
    run = write_run(tmp_path / "run", {case: [1e-6] for case in cases})
    assert "\x1b" not in compare(run, "--by", "policy", "--style", style).out


def test_runs_measured_in_turns_are_compared_block_by_block(compare: Collbench, tmp_path: Path) -> None:
    """Both drift by 30 % over ten launches, the second is 5 % slower in each: seen in blocks alone."""
    times = [10e-6 * (1 + 0.03 * n) for n in range(10)]
    one, two = (write_launches(tmp_path / name, {made_case(): [time * factor for time in times]})
                for name, factor in (("a", 1.0), ("b", 1.05)))  # fmt: skip
    blocks = compare(one, two, "--in-blocks", "--style", "csv").out
    assert ",slower" in blocks and "alternately" not in blocks
    assert "unclear" in compare(one, two, "--style", "csv").out


def test_runs_that_drift_are_not_called_different(compare: Collbench, tmp_path: Path) -> None:
    """The machine slows down by 7 % over each of two runs, measured one after the other: nothing else differs."""
    names = iter(("a", "b"))
    one, two = (write_run(tmp_path / next(names), {made_case(): [1e-5 * (1 + 0.007 * (first + n)) for n in range(10)]})
                for first in (0, 10))  # fmt: skip
    found = compare(one, two, "--fail-on", "slower")
    (judged,) = json.loads(compare(one, two, "--style", "json").out)["comparisons"]
    assert (judged["verdict"], judged["launches_more"]) == ("unclear", None)
    assert judged["why"] in found.out
    assert (found.code, "times drift" in found.err) == (1, True)
    assert "measured alternately" in found.out
    twice = write_run(tmp_path / "c", {made_case(): [2e-5 * (1 + 0.007 * (10 + n)) for n in range(10)]})
    assert compare(one, twice, "--fail-on", "slower").code == 1


def test_a_baseline_stands_for_its_run(compare: Collbench, runs: tuple[Path, Path], tmp_path: Path) -> None:
    kept = tmp_path / "baseline.json"
    saved = compare(runs[0], "--save-baseline", kept)
    assert (saved.code, saved.err) == (0, "") and "1 cell" in saved.out
    by_file = json.loads(compare(runs[1], "--baseline", kept, "--style", "json").out)
    by_run = json.loads(compare(*runs, "--style", "json").out)
    by_run["comparisons"][0]["base"]["name"] = str(kept)
    by_run["answer"] = by_run["answer"].replace(f"{runs[0]}: ", f"{kept}: ")
    assert by_file == by_run
    assert compare(runs[1], "--baseline", kept, "--fail-on", "slower", "--margin", "10%").code == 1
    assert compare(runs[1], "--baseline", kept, "--fail-on", "slower", "--margin", "30%").code == 0


def test_a_baseline_remembers_how_it_was_measured_and_where(compare: Collbench, tmp_path: Path) -> None:
    case = made_case()
    kept = tmp_path / "baseline.json"
    compare(write_run(tmp_path / "a", {case: [made_record(case, 0, 1e-6, gate="barrier")]}), "--save-baseline", kept)
    found = compare(write_run(tmp_path / "b", {case: [1e-6]}), "--baseline", kept)
    assert "gate barrier against roundtime" in found.out
    elsewhere = compare(write_run(tmp_path / "c", {case: [1e-6]}, hosts=(host(cpu="Xeon"),)), "--baseline", kept)
    assert elsewhere.code == 2 and "cpu: EPYC 7003 against Xeon" in elsewhere.err


def test_a_baseline_is_never_overwritten(compare: Collbench, runs: tuple[Path, Path], tmp_path: Path) -> None:
    kept = tmp_path / "baseline.json"
    kept.write_text("precious")
    found = compare(runs[0], "--save-baseline", kept)
    assert (found.code, kept.read_text()) == (1, "precious")
    assert "exists already" in found.err
    assert compare(runs[0], "--save-baseline", tmp_path / "none" / "x").code == 1


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[: len(text) // 2], lambda text: "{}", lambda text: "\xff", lambda text: "[" * 10000,
     lambda text: text.replace('"baseline": 1', '"baseline": 2'), lambda text: text.replace('"medians"', '"medium"'),
     lambda text: text.replace('"launches": [\n    0,', '"launches": ['), lambda text: text.replace("1e-05", "-1e-05")],
)  # fmt: skip
def test_a_damaged_baseline_is_named(
    compare: Collbench, tmp_path: Path, runs: tuple[Path, Path], damage: Callable[[str], str]
) -> None:
    run = write_run(tmp_path / "run", {made_case(): [1e-05, 1.1e-05]})
    kept = tmp_path / "baseline.json"
    compare(run, "--save-baseline", kept)
    text = " ".join(kept.read_text().split())
    damaged = damage(kept.read_text())
    if damaged == kept.read_text():
        damaged = text.replace('"launches": [ 0,', '"launches": [')
    assert " ".join(damaged.split()) != text
    kept.write_text(damaged, encoding="latin-1")
    found = compare(run, "--baseline", kept)
    assert found.code == 2
    assert str(kept) in found.err and "Traceback" not in found.err


@pytest.mark.parametrize("name", ["none", "."])
def test_a_baseline_that_is_no_file_is_named(compare: Collbench, tmp_path: Path, runs: tuple[Path, Path],
                                             name: str) -> None:  # fmt: skip
    found = compare(runs[0], "--baseline", tmp_path / name)
    assert found.code == 2 and str(tmp_path) in found.err


def test_refusals_end_with_2_and_say_what_would_work(
    compare: Collbench, runs: tuple[Path, Path], launched: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    other = write_run(tmp_path / "mpich", {made_case(): [1e-6]}, libraries=(library("MPICH", "4.3"),))
    (tmp_path / "empty").mkdir()
    refused: list[tuple[object, ...]] = [
        (*runs, "--ignore", "kernal"),
        (runs[0], other, "--by", "libary"),
        (launched, "--by", "polcy"),
        (launched,),
        (*runs, launched),
        (launched, "--by", "policy", "--between", "host"),
        (*runs, "--between", "a,b"),
        *((*runs, "--margin", margin) for margin in ("5", "-1", "100%")),
        (launched, "--by", "policy", "--ignore", "image", "--save-baseline", tmp_path / "b"),
        (runs[0], runs[0].parent / "." / runs[0].name),
        (runs[0], tmp_path / "none"),
        (runs[0], tmp_path / "empty"),
        (runs[0], write_run(tmp_path / "nothing", {})),
        (*runs, "--baseline", runs[0]),
    ]
    shown = ""
    for arguments in refused:
        result = compare(*arguments)
        assert (result.code, result.out) == (2, "")
        shown += f"$ compare {' '.join(map(str, arguments))}\n{result.err}\n"
    golden("compare-refusals.txt", shown.replace(str(tmp_path), "TMP"))


def test_several_things_are_ignored_by_commas_or_by_saying_it_again(compare: Collbench, tmp_path: Path) -> None:
    case = made_case()
    runs = [write_run(tmp_path / "a", {case: [1e-6]}),
            write_run(tmp_path / "b", {case: [1e-6]}, hosts=(host(cpu="Xeon", kernel="6.6"),))]  # fmt: skip
    assert compare(*runs).code == 2
    assert compare(*runs, "--ignore", "cpu").code == 2
    assert compare(*runs, "--ignore", "cpu,kernel").code == compare(*runs, "--ignore", "CPU", "--ignore", "kernel").code
    assert "also differs: cpu: EPYC 7003 against Xeon" in compare(*runs, "--ignore", "cpu,kernel").out


def test_libraries_are_compared_between_two_runs(compare: Collbench, tmp_path: Path) -> None:
    case = made_case()
    one = write_run(tmp_path / "a", {case: spread(1e-6)})
    two = write_run(tmp_path / "b", {case: spread(2e-6)}, libraries=(library("MPICH", "4.3", None),), launcher="Hydra")
    assert compare(one, two).code == 2
    found = compare(one, two, "--by", "library")
    assert found.code == 0 and "slower" in found.out


def test_a_cut_off_record_and_lonely_cells_are_said(compare: Collbench, tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {made_case(): spread(1e-6), made_case(size=8): [1e-6]})
    two = write_run(tmp_path / "b", {made_case(): spread(1e-6)})
    with (two / "records.jsonl").open("ab") as file:
        file.write(b'{"case":')
    found = compare(one, two)
    assert found.code == 0
    assert "cut off" in found.err
    assert "left out: 1 cell" in found.err and "a has." in found.err


def test_another_gate_has_no_verdict_until_it_is_ignored(compare: Collbench, tmp_path: Path) -> None:
    case = made_case()
    one = write_run(tmp_path / "a", {case: spread(1e-6)})
    two = write_run(tmp_path / "b", {case: [made_record(case, n, 1e-6, gate="barrier") for n in range(10)]})
    why = 'gate roundtime against barrier; gate = ""barrier"" in the plan (or --gate barrier) measures both'
    assert f"not comparable ({why})" in compare(one, two, "--style", "csv").out
    assert "not comparable" not in compare(one, two, "--style", "csv", "--ignore", "gate").out


def test_without_scipy_a_sentence_says_how_to_get_it(
    compare: Collbench, runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scipy", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
    found = compare(*runs)
    assert found.code == 2
    assert "SciPy" in found.err and to_install("analysis") in found.err
    assert compare(runs[0], "--save-baseline", runs[0] / "kept").code == 0  # needs none


def test_sides_that_differ_in_nothing_measured_say_only_that(compare: Collbench, tmp_path: Path) -> None:
    """Every cell failed: a table of reasons, no columns of numbers, and no traceback."""
    runs: Any = [write_run(tmp_path / name, {made_case(): [made_failure(made_case(), 0, "broken")]}) for name in "ab"]
    found = compare(*runs)
    assert found.code == 0 and "failed: broken" in found.out
    assert "difference (%)" not in found.out


def test_a_folder_with_runs_of_different_things_is_refused(compare: Collbench, tmp_path: Path) -> None:
    write_run(tmp_path / "all" / "1", {made_case(): [10e-6]})
    write_run(tmp_path / "all" / "2", {made_case(): [10e-6]}, libraries=(library("MPICH", "5.0.2"),))
    found = compare(tmp_path / "all", twin(tmp_path / "all"))
    assert found.code == 2
    assert "library: MPICH 5.0.2 and Open MPI 5.0.11" in found.err


def test_a_run_that_is_not_there_is_named_before_a_question_is_asked(compare: Collbench, tmp_path: Path) -> None:
    found = compare(tmp_path / "nothing")
    assert found.code == 2 and "nothing: not a run" in found.err


def test_notes_of_a_csv_file_go_to_standard_error(tmp_path: Path, compare: Collbench) -> None:
    """A file for programs has no room for them, and nobody is to read it without them."""
    runs = [write_run(tmp_path / name, {made_case(): spread(10e-6)}) for name in ("a", "b")]
    found = compare(*runs, "--style", "csv")
    assert found.code == 0 and found.out.startswith("table,")
    assert "not interleaved" not in found.out and "measured alternately" in found.err
    assert "* " not in compare(*runs, "--style", "table").err


def test_sides_of_a_run_are_not_compared_with_a_baseline(compare: Collbench, launched: Path, tmp_path: Path) -> None:
    """A Python dict in a message tells a user nothing."""
    kept = tmp_path / "kept.json"
    whole = write_run(tmp_path / "whole", {HOST: spread(1e-6), MULTI: spread(1e-6)})
    assert compare(whole, "--save-baseline", kept).code == 0
    refused = compare(twin(whole), "--by", "policy", "--baseline", kept)
    assert refused.code == 2 and "{" not in refused.err.replace(HOSTILE, "")
    assert "policy host and multi; isolation none and strict" in refused.err
    assert "collbench compare RUN --by policy," in refused.err


@pytest.mark.parametrize("answer", [("compare", "--by"), ("compare", "--ignore"), ("advise", "--ignore")])
def test_a_variable_is_named_as_the_refusal_names_it(here: Collbench, tmp_path: Path, answer: tuple[str, str]) -> None:
    """Upper case and underscores, which are no matter in the name of any other fact."""
    command, flag = answer
    variable = "OMPI_MCA_coll_tuned_allreduce_algorithm"
    runs = [write_run(tmp_path / f"algorithm{value}", {made_case(): spread(1e-5)}, environment={variable: value})
            for value in ("1", "3")]  # fmt: skip
    refused = here(command, *runs)
    assert refused.code == 2
    assert f"{flag} env:{variable}" in refused.err
    assert here(command, *runs, flag, f"env:{variable}").code == 0


def test_the_libraries_of_a_run_are_those_of_its_images(compare: Collbench, tmp_path: Path) -> None:
    cells = {made_case(*place, image=image): spread(time * 1e-6) for image, time in (("mpich", 1.0), ("openmpi", 2.0))
             for place in (("host", None), ("multi", "strict"))}  # fmt: skip
    run = write_run(tmp_path / "run", cells)
    of_library, of_image = (
        json.loads(compare(run, "--by", name, "--style", "json").out)["comparisons"] for name in ("library", "image")
    )
    assert of_library == of_image
    assert [(one["base"]["name"], one["other"]["name"]) for one in of_library] == [("mpich", "openmpi")] * 2


# `collbench compare --fail-on` ----------------------------------------------------------------------------------------

NOTHING = Work(amount=0, count=0, bus_factor=1.0)
LATE = Samples(n=200, invalid=150, warmup=5)
BARE, INSIDE = (made_case(policy, step, image="a") for policy, step in (("host", None), ("multi", "strict")))


@pytest.mark.parametrize(("asked", "code"), [("slower", 1), ("faster", 0), ("different", 1), ("unclear", 1)])
def test_fail_on_decides_the_exit_code(compare: Collbench, runs: tuple[Path, Path], asked: str, code: int) -> None:
    found = compare(*runs, "--fail-on", asked)
    assert found.code == code
    assert bool(code) == (f"--fail-on {asked}: 1 slower; 1 cell compared" in found.err)
    swapped = compare(*runs[::-1], "--fail-on", asked)
    assert swapped.code == {"slower": 0, "faster": 1, "different": 1, "unclear": 0}[asked]
    assert compare(*runs, "--fail-on", asked, "--margin", "50%").code == 0


MODES = ("slower", "faster", "different", "unclear")


@pytest.mark.parametrize("asked", MODES)
def test_what_was_not_measured_fails_every_check(compare: Collbench, tmp_path: Path, asked: str) -> None:
    """The other side failed, lacks a cell, was measured in another way, or has a wrong result in one launch of many."""
    small, large = made_case(size=8), made_case(size=64)
    base = write_run(tmp_path / "base", {small: spread(10e-6), large: spread(20e-6)})
    twice = [made_record(large, n, time) for n, time in enumerate(spread(20e-6))]
    wrong = msgspec.structs.replace(twice[3], check=ResultCheck(wrong=5))
    others: dict[str, Sequence[Entry]] = {
        "failed": ["12 elements are wrong"] * 10, "missing": [], "failed in one": [*twice[:3], wrong, *twice[4:]],
        "not comparable": [msgspec.structs.replace(one, gate="barrier") for one in twice],
    }  # fmt: skip
    others |= {
        "1 failed in base": twice, "1 skipped": [*twice[:3], made_failure(large, 3, "no such", "skipped"), *twice[4:]],
        "1 with launches measured differently": [msgspec.structs.replace(twice[0], gate="barrier"), *twice[1:]],
        "1 with unchecked results": [msgspec.structs.replace(one, check=ResultCheck(wrong=None)) for one in twice],
        "1 on a shared GPU": [msgspec.structs.replace(one, shared_gpu=True) for one in twice],
        "1 with most samples late": [msgspec.structs.replace(one, samples=LATE) for one in twice],
        "1 not comparable": [msgspec.structs.replace(one, work=NOTHING) for one in twice],
    }  # fmt: skip
    broken = write_run(tmp_path / "broken", {small: spread(10e-6), large: [*twice[:3], "died", *twice[4:]]})
    for name, entries in others.items():
        measured: dict[Case, Sequence[Entry]] = {small: spread(10e-6)}
        if entries:
            measured[large] = entries
        other = write_run(tmp_path / name, measured)
        said = f"1 {name.removeprefix('1 ').partition(' in ')[0]}"
        found = compare(broken if "base" in name else base, other, "--fail-on", asked)
        assert (found.code, said in found.err) == (1, True), (name, found.err)
    assert compare(base, twin(base), "--fail-on", asked, "--margin", "10%").code == 0


def test_what_else_fails_a_check_is_said(
    compare: Collbench, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    """By what is wrong with the runs, each of which fails whatever is asked for, or at least a check for slower."""
    at = tmp_path
    with RunWriter(at / "unlike-its-samples", made_manifest()) as writer:
        for launch, time in enumerate(spread(20e-6)):
            record = made_record(made_case(), launch, time, samples=Samples(n=20, invalid=0, warmup=5))
            writer.append(record, np.full((2, 20), 10_000))
    unlike = at / "unlike-its-samples"
    few = write_run(at / "few", {BARE: spread(1e-6, 5), INSIDE: spread(1e-6, 5)})
    # The machine slows down by 30 % over two runs, one after the other, which hides any difference.
    times = [1e-5 * (1 + 0.015 * n) for n in range(20)]
    drift = [write_run(at / f"drift{n}", {made_case(): times[n : n + 10]}) for n in (0, 10)]
    thirty: dict[Case, Sequence[Entry]] = {}
    for size in range(30):
        bare, inside = (case.having(size=8 * size + 8) for case in (BARE, INSIDE))
        thirty |= {bare: spread(10e-6, 6, 0.001), inside: spread(10e-6 if size else 20e-6, 6, 0.001)[::-1]}
    alone: dict[Case, Sequence[Entry]] = {
        BARE: spread(10e-6),
        INSIDE: spread(10e-6),
        BARE.having(size=65536): spread(1e-5),
    }
    stopped: dict[Case, Sequence[Entry]] = {BARE: spread(1e-5, 8), INSIDE: [*spread(1e-5, 8), None, None]}
    lacking: dict[Case, Sequence[Entry]] = {BARE: spread(1e-5, 8), INSIDE: spread(1e-5, 8)[:-1]}
    steady = spread(1e-5, 60, 0.002)
    jumping = [time * (2 if n % 3 == 0 else 1) for n, time in enumerate(steady)]
    slow: dict[Case, Sequence[Entry]] = {BARE: steady, INSIDE: jumping}
    checks: list[tuple[tuple[object, ...], Sequence[str]]] = [
        ((unlike, twin(unlike), "--margin", "10%"), MODES), ((few, "--by", "policy"), MODES), ((*drift,), MODES),
        ((write_run(at / "one-of-thirty", thirty), "--by", "policy"), ("slower",)),
        ((write_run(at / "no-partner", alone), "--by", "policy"), ("slower",)),
        ((write_run(at / "stopped", stopped), "--by", "policy", "--margin", "10%"), ("slower",)),
        ((write_run(at / "lacks-a-launch", lacking), "--by", "policy", "--margin", "10%"), ("slower",)),
        ((write_run(at / "slow-launches", slow), "--by", "policy"), ("slower",)),
    ]  # fmt: skip
    shown = ""
    for arguments, modes in checks:
        for mode in modes:
            result = compare(*arguments, "--fail-on", mode)
            assert result.code == 1, (arguments, mode)
            shown += f"$ compare {' '.join(map(str, arguments))} --fail-on {mode}\n{result.err}\n"
    golden("compare-checks.txt", shown.replace(str(tmp_path), "TMP"))
    quieter = write_run(tmp_path / "quieter", {BARE: jumping, INSIDE: steady})
    assert compare(quieter, "--by", "policy", "--fail-on", "slower").code == 0


@pytest.mark.parametrize("asked", MODES)
def test_what_both_sides_skipped_fails_no_check(compare: Collbench, tmp_path: Path, asked: str) -> None:
    small, large = made_case(size=8), made_case(size=64)
    skipped = [made_failure(large, n, "no such algorithm", "skipped") for n in range(10)]
    run = write_run(tmp_path / "run", {small: spread(10e-6), large: skipped})
    assert compare(run, twin(run), "--fail-on", asked, "--margin", "10%").code == 0


def test_folders_without_records_are_said_and_fail_a_check(compare: Collbench, tmp_path: Path) -> None:
    one, two = (write_launches(tmp_path / name, {made_case(): spread(1e-5)}) for name in ("a", "b"))
    (two / "003" / "records.jsonl").write_text("")
    (two / "005" / "manifest.json").unlink()
    found = compare(one, two, "--fail-on", "slower", "--margin", "10%")
    assert found.code == 1 and "003: no records" in found.err
    assert "005: no manifest.json" in compare(one, two).err


def test_launches_that_do_not_belong_together_are_not_paired(compare: Collbench, tmp_path: Path) -> None:
    one, two, three = (write_launches(tmp_path / name, {made_case(): spread(1e-5)}, created=f"2026-01-0{day}T00:00:00")
                       for name, day in (("a", 1), ("b", 1), ("c", 2)))  # fmt: skip
    assert compare(one, two, "--in-blocks").code == 0
    late = compare(one, three, "--in-blocks")
    assert (late.code, "measured alternately" in late.err) == (2, True)
    (two / "003").rename(two / "x03")
    found = compare(one, two, "--in-blocks")
    assert (found.code, "different launches: 003, x03 " in found.err) == (2, True)


def test_no_baseline_is_made_of_what_failed(compare: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {made_case(): [*spread(1e-5), "died"]})
    found = compare(run, "--save-baseline", tmp_path / "b.json")
    assert (found.code, "1 cell failed" in found.err) == (2, True)
    assert not (tmp_path / "b.json").exists()


def test_a_baseline_whose_burst_is_no_number_is_refused(compare: Collbench, tmp_path: Path) -> None:
    run, kept = write_run(tmp_path / "run", {made_case(): spread(1e-5)}), tmp_path / "b.json"
    assert compare(run, "--save-baseline", kept).code == 0
    kept.write_text(re.sub(r'("burst",\s*)"1"', r'\1"many"', kept.read_text()))
    found = compare(run, "--baseline", kept)
    assert (found.code, " burst " in found.err) == (2, True)


def test_a_baseline_with_a_way_that_is_not_listed_is_refused(compare: Collbench, tmp_path: Path) -> None:
    run, kept = write_run(tmp_path / "run", {made_case(): spread(1e-5)}), tmp_path / "b.json"
    assert compare(run, "--save-baseline", kept).code == 0
    document = json.loads(kept.read_text())
    for how, way in (([], 0), (document["cells"][0]["how"], 1)):
        document["cells"][0] |= {"how": how, "ways": [way] * 10}
        kept.write_text(json.dumps(document))
        found = compare(run, "--baseline", kept)
        assert (found.code, f" way {way}" in found.err) == (2, True)


# What `collbench compare` suggests in a refusal works, and nothing else is suggested ----------------------------------

AXES_THAT_DIFFER = {"op": "max", "dtype": "float64", "backend": "nccl", "staging": "pinned", "image": "x", "ranks": 4,
                    "policy": "single"}  # fmt: skip


@pytest.mark.parametrize(("axis", "value"), AXES_THAT_DIFFER.items())
def test_what_a_refusal_suggests_to_ignore_can_be_ignored(
    compare: Collbench, tmp_path: Path, axis: str, value: str | int
) -> None:
    sides = {"one": made_case(image="y"), "two": made_case(image="y").having(**{axis: value})}
    runs = [write_run(tmp_path / name, {case: spread(1e-6)}) for name, case in sides.items()]
    refused = compare(*runs)
    assert refused.code == 2 and "None" not in refused.err
    assert f"To compare anyway: --ignore {axis}" in refused.err
    assert compare(*runs, "--ignore", axis).code == 0


def test_nothing_is_suggested_to_ignore_that_leaves_several_cells(compare: Collbench, tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", {made_case(): [1e-6]})
    two = write_run(tmp_path / "two", {made_case(image=name): [1e-6] for name in "ab"})
    refused = compare(one, two)
    assert "image none against a, b." in refused.err
    assert "To compare anyway" not in refused.err
    crossed = [
        write_run(tmp_path / dtype, {made_case(dtype=dtype, op=op, size=size): [1e-6] for op, size in pairs})
        for dtype, pairs in (("float32", (("sum", 8), ("max", 16))), ("float64", (("max", 8), ("sum", 16))))
    ]
    assert "dtype float32 against float64." in compare(*crossed).err


def test_a_factor_is_suggested_only_where_it_explains_every_difference(compare: Collbench, tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {made_case(): spread(1e-6)})
    two = write_run(tmp_path / "b", {made_case(): spread(1e-6)}, hosts=(host(cpu="Xeon", kernel="6.6"),))
    for chosen in ([], ["--by", "kernel"], ["--by", "cpu"]):
        assert "--by" not in compare(one, two, *chosen).err
    assert ": --by kernel." in compare(one, two, "--ignore", "cpu").err
    assert compare(one, two, "--ignore", "cpu", "--by", "kernel").code == 0


# Runs that ended when their own comparisons were decided are not combined; each alone, and across, they are judged

SIDES = [made_case(image="openmpi"), made_case("single", "strict", image="openmpi")]


def run(path: Path, until: Until) -> Path:
    cells = {case: spread(time * 1e-6, 8) for case, time in zip(SIDES, (10, 11), strict=True)}
    return write_run(path, cells, experiment=experiment(("openmpi",), launches=8, until=until))


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    return run(tmp_path / "runs" / "fixed", "launches"), run(tmp_path / "runs" / "stopped", "decided")


def test_they_are_not_advised_on_together(here: Collbench, both: tuple[Path, Path]) -> None:
    code, out, err = here("advise", *both)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{both[1]} " in err and " decided" in err
    assert all(here("advise", one).code == 0 for one in both)


@pytest.mark.parametrize("command", ["advise", "report", "compare"])
def test_a_folder_of_such_runs_is_refused(here: Collbench, both: tuple[Path, Path], command: str) -> None:
    words = ["--by", "policy"] if command == "compare" else []
    code, _, err = here(command, both[0].parent, *words)
    assert code == 2 and f"{both[1]} " in err and " decided" in err, err


def test_a_folder_of_one_run_is_that_run(here: Collbench, tmp_path: Path) -> None:
    stopped = run(tmp_path / "runs" / "stopped", "decided")
    assert here("compare", stopped.parent, "--by", "policy").code == 0


def test_two_are_compared_with_each_other(here: Collbench, tmp_path: Path) -> None:
    made = [write_run(tmp_path / name, {SIDES[0]: spread(time * 1e-6, 8)},
                      experiment=experiment(("openmpi",), launches=8, until="decided"))
            for name, time in (("a", 10.0), ("b", 11.0))]  # fmt: skip
    (one,) = json.loads(here("compare", *made, "--style", "json").out)["comparisons"]
    assert (one["verdict"], one["blocks"]) == ("slower", False)
