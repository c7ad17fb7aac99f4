"""The command compare: exit codes, messages, every style, baselines, checks, suggestions."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit import made_runs
from tests.unit.conftest import Answer, Collbench
from tests.unit.made_runs import Entry, made_case, made_failure, made_record, spread, twin, write_launches, write_run

from collbench.errors import to_install
from collbench.schema.case import Case
from collbench.schema.record import ResultCheck, Samples, Work
from collbench.schema.store import RunWriter

Golden = Callable[[str, str], None]

HOSTILE = "a|b<script>&_%$#{~^}\\"
PLAIN = made_case()
HOST, MULTI = (made_case(policy, step, image="a") for policy, step in (("host", None), ("multi", "strict")))
MPICH = {"libraries": (made_runs.library("MPICH", "4.3"),)}


@pytest.fixture
def launched(tmp_path: Path) -> Path:
    """Ten launches of two sizes on the host and in containers with a hostile name; one size failed in these."""
    bare, inside = HOST.having(image=HOSTILE), MULTI.having(image=HOSTILE)
    return write_run(tmp_path / "launched", {
        bare: spread(10e-6), inside: spread(12e-6), bare.having(size=65536): spread(90e-6),
        inside.having(size=65536): ["died: a|b"] * 10,
    })  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of one case, the second 20 % slower."""
    first, second = (write_run(tmp_path / name, {PLAIN: spread(time)}) for name, time in (("a", 10e-6), ("b", 12e-6)))
    return first, second


def comparisons(compare: Collbench, *arguments: object) -> list[dict[str, Any]]:
    """As programs get them."""
    entries: list[dict[str, Any]] = json.loads(compare(*arguments, "--style", "json").out)["comparisons"]
    return entries


def in_csv(answer: Answer) -> list[list[str]]:
    return list(csv.reader(io.StringIO(answer.out)))


@pytest.mark.parametrize(
    ("host_launches", "multi_launches", "shown"),
    [(range(10), range(10), "10"), (range(12), range(8, 15), "4 of 12 and 7"), (range(7), range(1, 8), "6 of 7"),
     (range(3), range(3, 6), "3")],
)  # fmt: skip
def test_the_launches_of_a_row_are_those_that_count(
    compare: Collbench, tmp_path: Path, host_launches: range, multi_launches: range, shown: str
) -> None:
    """Of the blocks, those with both sides; and where there are such, of how many launches."""
    cells = {case: [1e-5 if launch in there else None for launch in range(15)]
             for case, there in ((HOST, host_launches), (MULTI, multi_launches))}  # fmt: skip
    head, row = in_csv(compare(write_run(tmp_path / "run", cells), "--by", "policy", "--style", "csv"))
    assert row[head.index("launches")] == shown


def test_two_runs_in_a_table_for_people(compare: Collbench, runs: tuple[Path, Path]) -> None:
    shown = compare(*runs, "--all")
    assert (shown.code, shown.err) == (0, "")
    assert "allreduce sum float32, backend mpi, driver native" in shown.out
    assert "+20.0" in shown.out and "slower" in shown.out and "verdicts: 1 slower" in shown.out
    document = json.loads(compare(*runs, "--style", "json").out)
    assert " ".join(shown.out.split()).startswith(document["answer"])
    assert [(one["verdict"], one["blocks"]) for one in document["comparisons"]] == [("slower", False)]


def test_json_has_every_number_and_null_where_there_is_none(compare: Collbench, launched: Path) -> None:
    document = json.loads(compare(launched, "--by", "policy", "--margin", "3%", "--style", "json").out)
    assert set(document) == {"margin", "comparisons", "notes", "doubts", "answer"}
    assert (document["margin"], document["doubts"]) == (0.03, []) and "died: a|b" in " ".join(document["notes"])
    measured, failed = document["comparisons"]
    assert set(measured) == set(failed) == {
        "base", "other", "ratio", "blocks", "sizes", "paper_diff_percent", "launches", "left_out", "contended",
        "results_differ", "slow", "verdict", "why", "launches_more"}  # fmt: skip
    assert measured["ratio"]["value"] == pytest.approx(1.2)
    assert measured["ratio"]["interval"][0] <= 1.2 <= measured["ratio"]["interval"][1]
    assert measured["paper_diff_percent"] == pytest.approx(-20.0) and measured["base"]["launches"] == 10
    assert measured["base"]["case"]["where"].get("image") == HOSTILE
    assert (failed["verdict"], failed["why"]) == ("not comparable", "multi strict: failed: died: a|b")
    assert (measured["sizes"], failed["sizes"], failed["ratio"]) == (1, 0, None)
    assert failed["other"]["value"] is None and failed["base"]["value"] == pytest.approx(90e-6, rel=0.01)


def test_csv_is_rectangular_with_ends_of_intervals_in_columns_of_their_own(compare: Collbench, launched: Path) -> None:
    head, *rows = in_csv(compare(launched, "--by", "policy", "--style", "csv"))
    assert len(rows) == 2 and {len(row) for row in rows} == {len(set(head))} == {len(head)}
    first, failed = (dict(zip(head, row, strict=True)) for row in rows)
    assert (first["image"], first["difference (%)"], first["verdict"], first["size (B)"]) == (
        HOSTILE, "+20.0", "slower", "1K")  # fmt: skip
    assert float(first["difference low"]) <= 20 <= float(first["difference high"]) and failed["difference low"] == ""
    assert float(first["base low"]) <= float(first["base (us)"]) <= float(first["base high"])


def test_markdown_and_latex_escape_what_would_be_markup(compare: Collbench, launched: Path) -> None:
    markdown = compare(launched, "--by", "policy", "--style", "markdown").out
    assert "<" not in markdown.replace("\\<script\\>", "") and "a\\|b" in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    latex = compare(launched, "--by", "policy", "--style", "latex").out
    assert latex.count("\\begin{table}") == latex.count("\\end{table}") == 1
    escaped = "a|b\\textless{}script\\textgreater{}\\&\\_\\%\\$\\#\\{\\textasciitilde{}\\textasciicircum{}\\}"
    assert f"{escaped}\\textbackslash{{}}" in latex and "(%)" not in latex.replace("\\%", "")
    rows = [line for line in latex.splitlines() if line.endswith("\\\\")]
    assert len({line.replace("\\&", "").count("&") for line in rows}) == 1


def named(path: Path, image: str) -> Path:
    return write_run(path, {case.having(image=image): spread(1e-6) for case in (HOST, MULTI)})


def test_csv_holds_no_formula_and_no_style_control_characters_of_a_run(compare: Collbench, tmp_path: Path) -> None:
    for formula in ("=1+1", "+cmd", "-x", "@y"):
        head, row = in_csv(compare(named(tmp_path / formula, formula), "--by", "policy", "--style", "csv"))
        assert row[head.index("image")] == f"'{formula}"
    run = named(tmp_path / "run", "x\x1b[31my")
    for style in ("table", "markdown", "csv", "latex", "json"):
        assert "\x1b" not in compare(run, "--by", "policy", "--style", style).out


def test_runs_measured_in_turns_are_compared_block_by_block(compare: Collbench, tmp_path: Path) -> None:
    """Both drift by 30 % over ten launches, the second is 5 % slower in each: seen in blocks alone."""
    times = [10e-6 * (1 + 0.03 * n) for n in range(10)]
    one, two = (write_launches(tmp_path / name, {PLAIN: [time * factor for time in times]})
                for name, factor in (("a", 1.0), ("b", 1.05)))  # fmt: skip
    assert [one["verdict"] for one in comparisons(compare, one, two, "--in-blocks")] == ["slower"]
    assert [one["verdict"] for one in comparisons(compare, one, two)] == ["unclear"]


# Baselines ------------------------------------------------------------------------------------------------------------


def saved(compare: Collbench, run: Path) -> Path:
    kept = run.with_name(f"{run.name}-baseline.json")
    answer = compare(run, "--save-baseline", kept)
    assert (answer.code, answer.err) == (0, "")
    return kept


def test_a_baseline_stands_for_its_run(compare: Collbench, runs: tuple[Path, Path]) -> None:
    kept = saved(compare, runs[0])
    by_file, by_run = (json.loads(compare(*arguments, "--style", "json").out)
                       for arguments in ((runs[1], "--baseline", kept), runs))  # fmt: skip
    by_run["comparisons"][0]["base"]["name"] = str(kept)
    by_run["answer"] = by_run["answer"].replace(f"{runs[0]}: ", f"{kept}: ")
    assert by_file == by_run
    for margin, code in (("10%", 1), ("30%", 0)):
        assert compare(runs[1], "--baseline", kept, "--fail-on", "slower", "--margin", margin).code == code


def test_a_baseline_remembers_how_it_was_measured_and_where(compare: Collbench, tmp_path: Path) -> None:
    kept = saved(compare, write_run(tmp_path / "a", {PLAIN: [made_record(PLAIN, 0, 1e-6, align="barrier")]}))
    run = write_run(tmp_path / "b", {PLAIN: [1e-6]})
    (refused,) = comparisons(compare, run, "--baseline", kept)
    assert refused["verdict"] == "not comparable"
    assert {"align", "barrier", "roundtime"} <= set(re.findall(r"\w+", refused["why"]))
    assert (
        "--align " in refused["why"] and comparisons(compare, run, "--baseline", kept, "--ignore", "align")[0]["ratio"]
    )
    xeon = write_run(tmp_path / "c", {PLAIN: [1e-6]}, hosts=(made_runs.host(cpu="Xeon"),))
    elsewhere = compare(xeon, "--baseline", kept)
    assert elsewhere.code == 2 and "cpu: EPYC 7003 against Xeon" in elsewhere.err


def test_no_baseline_is_overwritten_or_made_of_what_failed(compare: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {PLAIN: spread(1e-5)})
    kept = tmp_path / "baseline.json"
    kept.write_text("precious")
    assert (compare(run, "--save-baseline", kept).code, kept.read_text()) == (1, "precious")
    assert compare(run, "--save-baseline", tmp_path / "none" / "x").code == 1
    failed = write_run(tmp_path / "failed", {PLAIN: [*spread(1e-5), "died"]})
    assert compare(failed, "--save-baseline", tmp_path / "b.json").code == 2 and not (tmp_path / "b.json").exists()


def without_ways(text: str, ways: int, way: int) -> str:
    """The first cell lists fewer ways of measuring than its launches have."""
    document = json.loads(text)
    document["cells"][0] |= {"how": document["cells"][0]["how"][:ways], "ways": [way] * 2}
    return json.dumps(document)


@pytest.mark.parametrize(
    ("damage", "named"),
    [(lambda text: text[: len(text) // 2], ""), (lambda text: "{}", ""), (lambda text: "\xff", ""),
     (lambda text: "[" * 10000, ""), (lambda text: re.sub(r'"baseline": \d+', '"baseline": 2', text), " 2"),
     (lambda text: text.replace('"medians"', '"medium"'), ""),
     (lambda text: re.sub(r'"medians": \[\s*', '"medians": [-', text), ""),
     (lambda text: re.sub(r'("launches": \[)\s*0,', r"\1", text), ""),
     (lambda text: re.sub(r'("burst",\s*)"1"', r'\1"many"', text), " burst "),
     (lambda text: without_ways(text, 0, 0), " way 0"), (lambda text: without_ways(text, 1, 1), " way 1")],
)  # fmt: skip
def test_a_damaged_baseline_is_named(
    compare: Collbench, tmp_path: Path, damage: Callable[[str], str], named: str
) -> None:
    run = write_run(tmp_path / "run", {PLAIN: [1e-05, 1.1e-05]})
    kept = saved(compare, run)
    damaged = damage(kept.read_text())
    assert damaged != kept.read_text()
    kept.write_text(damaged, encoding="latin-1")
    refused = compare(run, "--baseline", kept)
    assert refused.code == 2 and str(kept) in refused.err and named in refused.err and "Traceback" not in refused.err


# Refusals -------------------------------------------------------------------------------------------------------------


def test_refusals_end_with_2_and_say_what_would_work(
    compare: Collbench, runs: tuple[Path, Path], launched: Path, tmp_path: Path, golden: Golden
) -> None:
    other = write_run(tmp_path / "mpich", {PLAIN: [1e-6]}, **MPICH)
    (tmp_path / "empty").mkdir()
    for name, fields in (("1", {}), ("2", MPICH)):
        write_run(tmp_path / "all" / name, {PLAIN: [10e-6]}, **fields)
    whole = write_run(tmp_path / "whole", {HOST: spread(1e-6), MULTI: spread(1e-6)})
    kept = saved(compare, whole)
    several = write_run(tmp_path / "several", {made_case(image=name): [1e-6] for name in "ab"})
    crossed = [write_run(tmp_path / dtype, {made_case(dtype=dtype, op=op, size=size): [1e-6] for op, size in cells})
               for dtype, cells in (("float32", {"sum": 8, "max": 16}.items()),
                                    ("float64", {"max": 8, "sum": 16}.items()))]  # fmt: skip
    launches = [write_launches(tmp_path / name, {PLAIN: spread(1e-5)}, created=f"2026-01-0{day}T00:00:00")
                for name, day in (("first", 1), ("second", 1), ("late", 2))]  # fmt: skip
    assert compare(*launches[:2], "--in-blocks").code == 0
    (launches[1] / "003").rename(launches[1] / "x03")
    refused: list[tuple[object, ...]] = [
        (*runs, "--ignore", "kernal"), (runs[0], other, "--by", "libary"), (launched, "--by", "polcy"), (launched,),
        (*runs, launched), (launched, "--by", "policy", "--between", "host"), (*runs, "--between", "a,b"),
        *((*runs, "--margin", margin) for margin in ("5", "-1", "100%")),
        (launched, "--by", "policy", "--ignore", "image", "--save-baseline", tmp_path / "b"),
        (runs[0], runs[0].parent / "." / runs[0].name), (tmp_path / "none",), (runs[0], tmp_path / "none"),
        (runs[0], tmp_path / "empty"), (runs[0], write_run(tmp_path / "nothing", {})),
        (*runs, "--baseline", runs[0]), (runs[0], "--baseline", tmp_path / "none"), (runs[0], "--baseline", tmp_path),
        (twin(whole), "--by", "policy", "--baseline", kept), (tmp_path / "all", twin(tmp_path / "all")),
        (runs[0], several), tuple(crossed), (*launches[:2], "--in-blocks"), (launches[0], launches[2], "--in-blocks"),
        (write_run(tmp_path / "failed", {PLAIN: ["died"]}), "--save-baseline", tmp_path / "b.json"),
    ]  # fmt: skip
    shown = ""
    for arguments in refused:
        result = compare(*arguments)
        assert (result.code, result.out) == (2, ""), arguments
        shown += f"$ compare {' '.join(map(str, arguments))}\n{result.err}\n"
    golden("compare-refusals.txt", shown.replace(str(tmp_path), "TMP"))


def test_several_things_are_ignored_by_commas_or_by_saying_it_again(compare: Collbench, tmp_path: Path) -> None:
    """A factor is suggested only where it explains every difference."""
    runs = [write_run(tmp_path / "a", {PLAIN: [1e-6]}),
            write_run(tmp_path / "b", {PLAIN: [1e-6]}, hosts=(made_runs.host(cpu="Xeon", kernel="6.6"),))]  # fmt: skip
    for chosen in ((), ("--by", "kernel"), ("--by", "cpu")):
        refused = compare(*runs, *chosen)
        assert refused.code == 2 and "--by" not in refused.err
    assert ": --by kernel." in compare(*runs, "--ignore", "cpu").err
    for ignored in (("cpu,kernel",), ("CPU", "--ignore", "kernel"), ("cpu", "--by", "kernel")):
        assert compare(*runs, "--ignore", *ignored).code == 0
    assert "cpu: EPYC 7003 against Xeon" in compare(*runs, "--ignore", "cpu,kernel").out


def test_the_libraries_of_a_run_are_those_of_its_images(compare: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {case.having(image=image): spread(us * 1e-6) for image, us in
                                       (("mpich", 1.0), ("openmpi", 2.0)) for case in (HOST, MULTI)})  # fmt: skip
    of_library, of_image = (comparisons(compare, run, "--by", name) for name in ("library", "image"))
    assert of_library == of_image
    assert [(one["base"]["name"], one["other"]["name"]) for one in of_library] == [("mpich", "openmpi")] * 2


def test_builds_that_are_sides_are_compared_by_side_and_named_in_rows(compare: Collbench, tmp_path: Path) -> None:
    builds = (made_runs.image("a", side="old"), made_runs.image("a", side="new", **MPICH))
    both = made_runs.experiment((), images=builds, environments=builds)
    cells = {case.having(side=side): spread(1e-6) for case in (HOST, MULTI) for side in ("old", "new")}
    run = write_run(tmp_path / "run", cells, experiment=both)
    refused = compare(run, "--by", "library")
    assert refused.code == 2 and "--by side" in refused.err
    head, *rows = in_csv(compare(run, "--by", "policy", "--style", "csv"))
    assert {row[head.index("side")] for row in rows} == {"old", "new"}


def test_a_cut_off_record_lonely_cells_and_lost_launches_are_said(compare: Collbench, tmp_path: Path) -> None:
    """Launches without records fail a check."""
    one, two = write_run(tmp_path / "a", {PLAIN: spread(1e-6), made_case(size=8): [1e-6]}), tmp_path / "b"
    with (write_run(two, {PLAIN: spread(1e-6)}) / "records.jsonl").open("ab") as file:
        file.write(b'{"case":')
    shown = compare(one, two)
    assert shown.code == 0 and f"{two}: " in shown.err and re.search(r": 1 cell\b.*\ba\b", shown.err)
    folders = [write_launches(tmp_path / name, {PLAIN: spread(1e-5)}) for name in ("c", "d")]
    (folders[1] / "003" / "records.jsonl").write_text("")
    (folders[1] / "005" / "manifest.json").unlink()
    failed = compare(*folders, "--fail-on", "slower", "--margin", "10%")
    assert failed.code == 1 and "003: " in failed.err and "005: " in failed.err


def test_without_scipy_a_sentence_says_how_to_get_it(
    compare: Collbench, runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scipy", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
    refused = compare(*runs)
    assert refused.code == 2 and "SciPy" in refused.err and to_install("analysis") in refused.err
    assert compare(runs[0], "--save-baseline", runs[0] / "kept").code == 0  # needs none


def test_sides_that_differ_in_nothing_measured_say_only_that(compare: Collbench, tmp_path: Path) -> None:
    """Every cell failed: a table of reasons, no columns of numbers, and no traceback."""
    runs = [write_run(tmp_path / name, {PLAIN: [made_failure(PLAIN, 0, "broken")]}) for name in "ab"]
    shown = compare(*runs)
    assert shown.code == 0 and "failed: broken" in shown.out and "(%)" not in shown.out


def test_notes_of_a_csv_file_go_to_standard_error(compare: Collbench, runs: tuple[Path, Path]) -> None:
    """A file for programs has no room for them, and nobody is to read it without them."""
    notes = json.loads(compare(*runs, "--style", "json").out)["notes"]
    shown = compare(*runs, "--style", "csv")
    assert shown.code == 0 and shown.out.startswith("table,") and notes
    assert all(note in shown.err and note not in shown.out for note in notes)
    assert "* " not in compare(*runs, "--style", "table").err


@pytest.mark.parametrize(("command", "flag"), [("compare", "--by"), ("compare", "--ignore"), ("advise", "--ignore")])
def test_a_variable_is_named_as_the_refusal_names_it(here: Collbench, tmp_path: Path, command: str, flag: str) -> None:
    """Upper case and underscores, which are no matter in the name of any other fact."""
    variable = "OMPI_MCA_coll_tuned_allreduce_algorithm"
    runs = [write_run(tmp_path / f"algorithm{value}", {PLAIN: spread(1e-5)}, environment={variable: value})
            for value in ("1", "3")]  # fmt: skip
    refused = here(command, *runs)
    assert refused.code == 2 and f"{flag} env:{variable}" in refused.err
    assert here(command, *runs, flag, f"env:{variable}").code == 0


@pytest.mark.parametrize(
    ("axis", "value"),
    [("op", "max"), ("dtype", "float64"), ("backend", "nccl"), ("staging", "pinned"), ("image", "x"), ("ranks", 4),
     ("policy", "single")],
)  # fmt: skip
def test_what_a_refusal_suggests_works(compare: Collbench, tmp_path: Path, axis: str, value: str | int) -> None:
    case = made_case(image="y")
    runs = [write_run(tmp_path / name, {side: spread(1e-6)})
            for name, side in (("one", case), ("two", case.having(**{axis: value})))]  # fmt: skip
    refused = compare(*runs)
    assert refused.code == 2 and "None" not in refused.err and f": --ignore {axis}" in refused.err
    assert compare(*runs, "--ignore", axis).code == 0


# `collbench compare --fail-on` ----------------------------------------------------------------------------------------

MODES = ("slower", "faster", "different", "unclear")
NOTHING = Work(amount=0, count=0, bus_factor=1.0)
LATE = Samples(n=200, invalid=150, warmup=5)


def test_fail_on_decides_the_exit_code(compare: Collbench, runs: tuple[Path, Path]) -> None:
    def failing(*arguments: object) -> list[str]:
        return [mode for mode in MODES if compare(*arguments, "--fail-on", mode).code]

    assert failing(*runs) == ["slower", "different", "unclear"]
    assert failing(*runs[::-1]) == ["faster", "different"]
    assert failing(*runs, "--margin", "50%") == []
    assert "--fail-on slower: 1 slower; 1 cell" in compare(*runs, "--fail-on", "slower").err


@pytest.mark.parametrize("mode", MODES)
def test_what_was_not_measured_fails_every_check(compare: Collbench, tmp_path: Path, mode: str) -> None:
    """The other side failed, lacks a cell, was measured in another way, or has a wrong result in one launch of many."""
    small, large = made_case(size=8), made_case(size=64)
    base = write_run(tmp_path / "base", {small: spread(10e-6), large: spread(20e-6)})
    right = [made_record(large, n, time) for n, time in enumerate(spread(20e-6))]

    def all_with(**fields: Any) -> list[Entry]:
        return [msgspec.structs.replace(one, **fields) for one in right]

    def one_of(entry: Entry) -> list[Entry]:
        return [*right[:3], entry, *right[4:]]

    others: dict[str, Sequence[Entry]] = {
        "1 failed": ["12 elements are wrong"] * 10, "1 missing": [],
        "1 failed ": one_of(msgspec.structs.replace(right[3], check=ResultCheck(wrong=5))),
        "1 not comparable": all_with(align="barrier"), "1 not comparable ": all_with(work=NOTHING),
        "1 skipped": one_of(made_failure(large, 3, "no such", "skipped")),
        "1 with launches measured differently": one_of(msgspec.structs.replace(right[3], align="barrier")),
        "1 with unchecked results": all_with(check=ResultCheck(wrong=None)),
        "1 on a shared GPU": all_with(shared_gpu=True), "1 with most samples late": all_with(samples=LATE),
    }  # fmt: skip
    for what, entries in others.items():
        other = write_run(tmp_path / what, {small: spread(10e-6), **({large: entries} if entries else {})})
        failed = compare(base, other, "--fail-on", mode)
        assert failed.code == 1 and what.strip() in failed.err, (what, failed.err)
    broken = write_run(tmp_path / "broken", {small: spread(10e-6), large: one_of("died")})
    failed = compare(broken, write_run(tmp_path / "right", {small: spread(10e-6), large: right}), "--fail-on", mode)
    assert failed.code == 1 and "1 failed" in failed.err
    both_skipped = [made_failure(large, n, "no such algorithm", "skipped") for n in range(10)]
    skipped = write_run(tmp_path / "skipped", {small: spread(10e-6), large: both_skipped})
    for run in (base, skipped):
        assert compare(run, twin(run), "--fail-on", mode, "--margin", "10%").code == 0


def test_what_else_fails_a_check_is_said(compare: Collbench, tmp_path: Path, golden: Golden) -> None:
    """By what is wrong with the runs, each of which fails whatever is asked for, or at least a check for slower."""

    def run(name: str, cells: Mapping[Case, Sequence[Entry]]) -> Path:
        return write_run(tmp_path / name, cells)

    unlike = tmp_path / "unlike-its-samples"
    with RunWriter(unlike, made_runs.made_manifest()) as writer:
        for launch, time in enumerate(spread(20e-6)):
            record = made_record(PLAIN, launch, time, samples=Samples(n=20, invalid=0, warmup=5))
            writer.append(record, np.full((2, 20), 10_000))
    # The machine slows down by 30 % over two runs, one after the other, which hides any difference.
    drift = [run(f"drift{first}", {PLAIN: [1e-5 * (1 + 0.015 * (first + n)) for n in range(10)]}) for first in (0, 10)]
    assert [one["launches_more"] for one in comparisons(compare, *drift)] == [None]
    thirty = {case.having(size=8 * size + 8): spread(20e-6 if case == MULTI and not size else 10e-6, 6, 0.001)[::step]
              for size in range(30) for case, step in ((HOST, 1), (MULTI, -1))}  # fmt: skip
    eight, steady = spread(1e-5, 8), spread(1e-5, 60, 0.002)
    jumping = [time * (2 if n % 3 == 0 else 1) for n, time in enumerate(steady)]
    alone = {HOST: spread(1e-5), MULTI: spread(1e-5), HOST.having(size=65536): spread(1e-5)}
    policy, wide = ("--by", "policy"), ("--by", "policy", "--margin", "10%")
    checks: list[tuple[tuple[object, ...], Sequence[str]]] = [
        ((unlike, twin(unlike), "--margin", "10%"), MODES),
        ((run("few", {HOST: spread(1e-6, 5), MULTI: spread(1e-6, 5)}), *policy), MODES), ((*drift,), MODES),
        ((run("one-of-thirty", thirty), *policy), ("slower",)), ((run("no-partner", alone), *policy), ("slower",)),
        ((run("stopped", {HOST: eight, MULTI: [*eight, None, None]}), *wide), ("slower",)),
        ((run("lacks-a-launch", {HOST: eight, MULTI: eight[:-1]}), *wide), ("slower",)),
        ((run("slow-launches", {HOST: steady, MULTI: jumping}), *policy), ("slower",)),
    ]  # fmt: skip
    assert comparisons(compare, tmp_path / "slow-launches", *policy)[0]["slow"]["launches"] == [0, 20]
    shown = ""
    for arguments, modes in checks:
        for mode in modes:
            failed = compare(*arguments, "--fail-on", mode)
            assert failed.code == 1, (arguments, mode)
            shown += f"$ compare {' '.join(map(str, arguments))} --fail-on {mode}\n{failed.err}\n"
    golden("compare-checks.txt", shown.replace(str(tmp_path), "TMP"))
    assert compare(run("quieter", {HOST: jumping, MULTI: steady}), *policy, "--fail-on", "slower").code == 0


# Runs that ended when their own comparisons were decided are not combined; each alone, and across, they are judged


def ended(path: Path, until: str, us: tuple[float, ...] = (10, 11)) -> Path:
    sides = (made_case(image="openmpi"), made_case("single", "strict", image="openmpi"))
    cells = {case: spread(time * 1e-6, 8) for case, time in zip(sides, us, strict=False)}
    return write_run(path, cells, experiment=made_runs.experiment(("openmpi",), launches=8, until=until))


def test_runs_until_decided_are_compared_and_not_combined(here: Collbench, tmp_path: Path) -> None:
    both = ended(tmp_path / "runs" / "fixed", "launches"), ended(tmp_path / "runs" / "stopped", "decided")
    for words in (("advise", *both), ("advise", tmp_path / "runs"), ("report", tmp_path / "runs"),
                  ("compare", tmp_path / "runs", "--by", "policy")):  # fmt: skip
        refused = here(*words)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
        assert f"{both[1]} " in refused.err and " decided" in refused.err
    assert all(here("advise", run).code == 0 for run in both)
    alone = ended(tmp_path / "alone" / "stopped", "decided")
    assert here("compare", alone.parent, "--by", "policy").code == 0, "a folder of one run is that run"
    each = [ended(tmp_path / name, "decided", (us,)) for name, us in (("a", 10.0), ("b", 11.0))]
    (one,) = json.loads(here("compare", *each, "--style", "json").out)["comparisons"]
    assert (one["verdict"], one["blocks"]) == ("slower", False)
