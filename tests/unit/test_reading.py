"""Reading runs: each record once, anywhere, from files that are named strangely or written by somebody else."""

from __future__ import annotations

import copy
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.processes import LIMIT
from tests.unit.conftest import Collbench
from tests.unit.made_runs import experiment, made_case, made_manifest, made_record, sampled, spread, twin, write_run

from collbench import collectives
from collbench.analysis import baseline
from collbench.analysis.runs import observe
from collbench.cli import ANYWHERE, COMMANDS, cli
from collbench.cli.terminal import harmless
from collbench.errors import RunReadError, RunWriteError
from collbench.report.page.contents import chapter
from collbench.report.page.figures.samples import SamplesByLaunch, StoredSamples
from collbench.report.page.render import html
from collbench.schema import manifest as manifests
from collbench.schema import record as records
from collbench.schema.manifest import LARGEST_MANIFEST
from collbench.schema.samples import pack
from collbench.schema.store import RunWriter, read_run

SIZES, LAUNCHES = (8, 1024, 64 << 10, 1 << 20), 6
RECORDS = 2 * len(SIZES) * LAUNCHES


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two images, four sizes, six launches, all with samples."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(1)
    with patch("os.fsync"), RunWriter(tmp_path / "run", made_manifest(experiment=experiment(("a", "b")))) as writer:
        for launch in range(LAUNCHES):
            for image, factor in (("a", 1), ("b", 2)):
                for size in SIZES:
                    samples = factor * (1 + size // 4096) * draw.integers(18_000, 22_000, (2, 50))
                    record = made_record(made_case(image=image, size=size), launch, 2e-5)
                    writer.append(sampled(record, samples), samples)
    return tmp_path / "run"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line of `records.jsonl` for each time that it is decoded."""
    found: list[str] = []
    real = records.decode

    def counting(line: bytes, what: str = "record", number: int = 0) -> records.Record:
        found.append(f"{what} {number}")
        return real(line, what, number)

    monkeypatch.setattr(records, "decode", counting)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["report", "run", "-o", "report.html"],
        ["report", "run", "-o", "report.md"],
        ["compare", "run", "--by", "image"],
        ["advise", "run"],
        ["model", "run"],
        ["show", "run"],
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_command_decodes_each_record_once(run: Path, decoded: list[str], command: list[str], packed: bool) -> None:
    if packed:
        pack(run)
    cli.main(command, "collbench", standalone_mode=False)
    assert len(decoded) == len(set(decoded)) == RECORDS


def test_two_runs_are_decoded_once_each(run: Path, decoded: list[str]) -> None:
    twin(run)
    cli.main(["compare", "run", "run-twin"], "collbench", standalone_mode=False)
    assert len(decoded) == len(set(decoded)) == 2 * RECORDS


def test_a_report_opens_an_archive_for_its_check_and_for_its_plots(run: Path) -> None:
    """Not for each plot: it may have a million members."""
    pack(run)
    with patch.object(zipfile, "ZipFile", wraps=zipfile.ZipFile) as opened:
        drawn = [figure for section in chapter(observe(run), {}, 0.02).sections for figure in section.folded]
    assert len(drawn) == len(SIZES)
    assert opened.call_count == 2


def drawn(run: Path) -> dict[str, SamplesByLaunch]:
    """What a plot of 8 B draws, every sample."""
    cells = {image: made_case(image=image, size=8) for image in ("a", "b")}
    with StoredSamples(observe(run)) as stored:
        found = stored.of(cells)
    assert (found.unread, found.step) == (0, 1)
    return found.samples


def same(one: dict[str, SamplesByLaunch], other: dict[str, SamplesByLaunch]) -> bool:
    return list(one) == list(other) and all(
        list(one[name]) == list(other[name]) and all((one[name][n] == other[name][n]).all() for n in one[name])
        for name in one
    )


def test_plots_of_a_packed_run_are_those_of_its_files(run: Path) -> None:
    before = drawn(run)
    assert [len(values) for values in before["a"].values()] == [50] * LAUNCHES
    pack(run)
    assert same(drawn(run), before)


def test_files_that_are_named_otherwise_are_found(run: Path) -> None:
    """Names are collbench's own where it wrote the run; another program's are as good."""
    before = drawn(run)
    lines = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(lines.replace("samples/", "samples/other_"))
    for path in (run / "samples").iterdir():
        path.rename(path.with_name(f"other_{path.name}"))
    assert same(drawn(run), before)


def test_of_very_many_samples_some_are_drawn(run: Path) -> None:
    """Bounded memory: of 12 launches with 50 samples each, 100 in all."""
    cells = {image: made_case(image=image, size=8) for image in ("a", "b")}
    with StoredSamples(observe(run)) as stored:
        thinned = stored.of(cells, most=100)
    assert thinned.step == 6
    every = {name: {n: values[::6] for n, values in launches.items()} for name, launches in drawn(run).items()}
    assert same(thinned.samples, every)


def test_a_plot_says_that_it_draws_some(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoredSamples.of, "__defaults__", (100,))
    captions = [figure.caption for section in chapter(observe(run), {}, 0.02).sections for figure in section.folded]
    assert len(captions) == len(SIZES)
    assert all("One in 6 of the samples is drawn." in caption for caption in captions)


def test_launches_of_a_folder_of_runs_are_drawn_in_their_order(run: Path, tmp_path: Path) -> None:
    """Each run is one launch or more, and keeps its samples in an archive of its own."""
    (tmp_path / "runs").mkdir()
    for name in ("first", "second"):
        twin(run).rename(tmp_path / "runs" / name)
    pack(tmp_path / "runs" / "second")
    found = drawn(tmp_path / "runs")["a"]
    assert list(found) == list(range(2 * LAUNCHES))
    assert all((found[launch] == found[launch + LAUNCHES]).all() for launch in range(LAUNCHES))


# A run is read where there is neither Unix nor an MPI -----------------------------------------------------------------

PROGRAM = Path(__file__).with_name("without_unix.py")


@pytest.fixture(scope="module")
def run_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies, as many sizes as a model takes, with samples."""
    path, draw = tmp_path_factory.mktemp("elsewhere") / "run", np.random.default_rng(1)
    with RunWriter(path, made_manifest(experiment=experiment(("openmpi",), launches=6))) as writer:
        for launch in range(6):
            for policy, isolation, factor in (("host", None, 1.0), ("single", "strict", 2.0)):
                for size in (1 << power for power in range(3, 21, 2)):
                    samples = (draw.uniform(9e3, 11e3, (2, 30)) * factor + size).astype(np.int64)
                    case = made_case(policy, isolation, image="openmpi", size=size)
                    writer.append(sampled(made_record(case, launch, 1e-5), samples), samples)
    return path


def told(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("show",), "median (us)"),
        (("show", "--style", "json"), '"records"'),
        (("compare", "--by", "policy"), "slower"),
        (("advise",), "take host"),
        (("model",), "typical error"),
    ],
)
def test_a_run_is_read_without_unix(run_elsewhere: Path, arguments: tuple[str, ...], answer: str) -> None:
    command, *flags = arguments
    assert answer in told(command, run_elsewhere, *flags)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_report_is_written_without_unix(run_elsewhere: Path, tmp_path: Path, ending: str) -> None:
    told("report", run_elsewhere, "--against", "choi2021", "-o", tmp_path / f"report.{ending}")
    assert "choi2021" in (tmp_path / f"report.{ending}").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_baseline_is_kept_and_held_against_without_unix(run_elsewhere: Path, tmp_path: Path) -> None:
    assert "a baseline of 18 cells" in told("compare", run_elsewhere, "--save-baseline", tmp_path / "baseline.json")
    other = twin(Path(shutil.copytree(run_elsewhere, tmp_path / "other")))
    assert "same" in told("compare", other, "--baseline", tmp_path / "baseline.json")


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", "macos"])
def test_every_command_has_help_and_what_measures_says_what_it_needs(system: str) -> None:
    names = [*(name for name, _, _ in COMMANDS), *collectives.names()]
    words = [*(f"{name} --help" for name in names), "--help", "image build --help", "plan", "plan quick", "list",
             "completion bash", *(name for name in names if name not in ANYWHERE)]  # fmt: skip
    done = subprocess.run(
        [sys.executable, PROGRAM, *" THEN ".join(words).split()],
        env=os.environ | {"SYSTEM": system}, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer[0] for answer in answers] == words
    for asked, code, out, err in answers:
        needs_linux = " " not in asked and asked.lstrip("-") not in {"help", *ANYWHERE}
        assert (code, bool(out), err.count("\n")) == ((2, False, 1) if needs_linux else (0, True, 0)), (asked, err)
        assert not needs_linux or f"{asked}: needs Linux" in err


# Files that commands are given ----------------------------------------------------------------------------------------

PLAN = 'collectives = ["allreduce"]\nsizes = ["8"]\nimages = ["openmpi"]\npolicies = ["host"]\nengine = "fake"\n'
DEEP = "[" * 100_000


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "plan.toml"


@pytest.mark.parametrize(
    "words",
    ["show ''", "advise ''", "report ''", "history ''", "pack ''", "compare '' x", "launch ''", "plan ''", "run ''",
     "gate ''", "launch quick --out ''", "launch quick --resume ''", "launch quick --site ''",
     "launch quick --docker-host ''",
     "gate quick --other image=a --out ''", "compare x --save-baseline ''", "selftest --out ''", "allreduce --out ''"],
)  # fmt: skip
def test_an_empty_name_is_not_this_folder(
    here: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = here(*("" if word == "''" else word for word in words.split()))
    assert (code, out) == (2, "") and "it is empty" in err, err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "engine"),
    [("launch PLAN --dry-run", "fake"), ("plan PLAN --on docker", "docker"), ("plan PLAN --on podman", "podman"),
     ("launch --sweep --on fake", "fake")],
)  # fmt: skip
def test_a_site_file_that_the_engine_would_not_read_is_refused(
    here: Collbench, plan: Path, tmp_path: Path, words: str, engine: str
) -> None:
    code, out, err = here(*words.replace("PLAN", str(plan)).split(), "--site", tmp_path / "nonexistent")
    assert (code, out, err) == (2, "", f"collbench: --site is for slurm and k8s; the engine is {engine}.\n")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "words",
    ["launch PIPE", "plan PIPE", "run PIPE", "launch PLAN --on slurm --site PIPE", "gate PIPE",
     "run PLAN --placement PIPE", "gate PLAN --other lib=PIPE", "show PIPE"],
)  # fmt: skip
def test_no_command_waits_for_a_pipe_that_nobody_writes_to(here: Collbench, plan: Path, pipe: Path, words: str) -> None:
    code, _, err = here(*(word.replace("PIPE", str(pipe)).replace("PLAN", str(plan)) for word in words.split()))
    assert code == 2 and err.count("\n") == 1 and str(pipe) in err, err


@pytest.mark.parametrize("name", ["plan.json", "plan.toml"])
def test_a_plan_that_is_nested_too_deep_is_said_to_be(here: Collbench, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(f'{{"sizes": {DEEP}' if name.endswith("json") else f"sizes = {DEEP}")
    code, _, err = here("plan", tmp_path / name)
    assert code == 2 and "nested too deeply" in err and "recursion" not in err, err


def test_a_record_that_is_nested_too_deep_is_said_to_be(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {made_case(): [1e-6]})
    (run / "records.jsonl").write_text(f'{{"case": {DEEP}\n')
    code, _, err = here("show", run)
    assert code == 2 and "nested too deeply" in err, err


@pytest.mark.parametrize("style", ["table", "csv"])
def test_a_run_without_records_is_not_shown(here: Collbench, tmp_path: Path, style: str) -> None:
    run = write_run(tmp_path / "run", {})
    assert here("show", run, "--style", style) == (2, "", f"collbench: {run}: no records in it.\n")


def test_bytes_of_a_name_that_are_no_characters_are_shown_as_bytes() -> None:
    assert harmless("caf\udce9") == "caf\\xe9"


@pytest.mark.timeout(60)
def test_a_pipe_without_a_reader_is_not_waited_for_by_what_writes_to_it(here: Collbench, pipe: Path) -> None:
    short = ("-n", "1", "-e", "8", "--backend", "fake")
    code, _, err = here("allreduce", *short, "-J", pipe)
    assert code == 1 and str(pipe) in err


@pytest.mark.parametrize("words", ["allreduce -J a --out LOOP", "run quick -J LOOP", "show LOOP", "compare LOOP LOOP",
                                   "history LOOP/x", "report LOOP -o a.md"])  # fmt: skip
def test_a_link_that_leads_to_itself_is_refused(here: Collbench, tmp_path: Path, words: str) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    code, _, err = here(*words.replace("LOOP", str(loop)).split())
    assert code == 2 and str(loop) in err


# A run is somebody's file ---------------------------------------------------------------------------------------------

Program = Callable[..., CompletedProcess[str]]


def edited(stored: Path, where: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a run whose first record is changed."""
    copy = Path(shutil.copytree(stored, where / "copy"))
    lines = (copy / "records.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    change(first)
    (copy / "records.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    return copy


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("samples", "invalid", 10**400),
        ("work", "bus_factor", 1e308),
        ("seconds", "p50", 1e300),
        ("case", "bytes", -1),
        ("work", "bytes", 10**400),
        ("work", "bytes", -1),
        ("work", "bus_factor", -1.0),
        ("seconds", "p50", -1.0),
        ("case", "ranks", -3),
        ("case", "ranks", 0),
        ("case", "root", -1),
        ("case", "root", 4),
        ("check", "wrong", -5),
        ("samples", "invalid", 1001),
        ("samples", "invalid", 1000),
        ("samples", "n", 0),
        ("samples", "warmup", -1),
        ("ranks", "p50", [-1.0]),
    ],
)
def test_impossible_numbers_are_refused(stored_run: Path, tmp_path: Path, part: str, field: str, value: float) -> None:
    def change(record: dict[str, Any]) -> None:
        record[part][field] = value

    with pytest.raises(RunReadError, match=r"records.jsonl line 1"):
        read_run(edited(stored_run, tmp_path, change))


@pytest.mark.parametrize(("field", "value"), [("launch", -1), ("burst", -7), ("burst", 0)])
def test_impossible_numbers_of_a_record_are_refused(stored_run: Path, tmp_path: Path, field: str, value: int) -> None:
    with pytest.raises(RunReadError, match=rf"records.jsonl line 1: .*{field}"):
        read_run(edited(stored_run, tmp_path, lambda record: record.update({field: value})))


@pytest.mark.parametrize(
    ("part", "field"),
    [("", "workload"), ("where", "image"), ("where", "policy"), ("where", "isolation"), ("what", "dtype")],
)
def test_names_of_a_case_are_bounded(stored_run: Path, tmp_path: Path, part: str, field: str) -> None:
    """Plots lay every letter of a name out: of hundreds of thousands for minutes."""

    def change(record: dict[str, Any]) -> None:
        (record["case"][part] if part else record["case"])[field] = "n" * 513

    with pytest.raises(RunReadError, match=r"line 1: .*512"):
        read_run(edited(stored_run, tmp_path, change))


def test_impossible_numbers_of_a_manifest_are_refused(stored_run: Path) -> None:
    whole = json.loads((stored_run / "manifest.json").read_text())
    for part, field, value in (("protocol", "timeout", -1.0), ("protocol", "warmup", -1), ("host", "cores", -4),
                               ("host", "memory", -1), ("host", "ranks", [-1])):  # fmt: skip
        changed = copy.deepcopy(whole)
        (changed["hosts"][0] if part == "host" else changed[part])[field] = value
        with pytest.raises(RunReadError, match=field):
            manifests.decode(json.dumps(changed).encode())


def test_a_result_that_was_wrong_has_failed_and_has_no_times(stored_run: Path, tmp_path: Path) -> None:
    """Whatever its status says: nothing that reads a run takes its times for times of the operation."""
    run = edited(stored_run, tmp_path, lambda record: record["check"].update(wrong=17))
    first = read_run(run).records[0]
    assert (first.status, first.seconds, first.ranks) == ("failed", None, None)
    assert first.reason == "wrong result: 17 elements are not what allreduce means"
    cell = observe(run).cells[first.case]
    assert (list(cell.medians), cell.failed, cell.wrong) == ([], 1, 1)


def test_what_failed_has_no_times(stored_run: Path, tmp_path: Path) -> None:
    run = edited(stored_run, tmp_path, lambda record: record.update(status="failed", reason="died"))
    assert read_run(run).records[0].seconds is None


FORGED = "openmpi\nopenmpi  single vs host  8  same"


@pytest.mark.slow
@pytest.mark.parametrize("style", ["table", "osu", "nccl-tests", "csv"])
def test_a_name_does_not_begin_a_line(collbench: Program, stored_run: Path, tmp_path: Path, style: str) -> None:
    run = edited(stored_run, tmp_path, lambda record: record["case"]["where"].update(image=FORGED))
    shown = collbench("show", run, "--style", style)
    assert shown.returncode == 0, shown.stderr
    assert "openmpi\\x0aopenmpi" in shown.stdout
    assert not any(line.startswith("openmpi  host") for line in shown.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("style", ["table", "csv", "markdown", "latex"])
def test_a_name_does_not_begin_a_row_of_a_comparison(collbench: Program, tmp_path: Path, style: str) -> None:
    cells = {made_case(policy, image=FORGED): spread(1e-5, 7) for policy in ("host", "single")}
    found = collbench("compare", write_run(tmp_path / "run", cells), "--by", "policy", "--all", "--style", style)
    assert found.returncode == 0, found.stderr
    assert "x0aopenmpi" in found.stdout
    assert not any(
        "single vs host" in line and "x0a" not in line for line in found.stdout.splitlines() if "same" in line
    )


def test_latex_has_control_characters_written_out_and_compiles(collbench: Program, tmp_path: Path) -> None:
    cells = {made_case(policy, image="a\x1b[31mb\n"): spread(1e-5, 7) for policy in ("host", "single")}
    run = write_run(tmp_path / "run", cells)
    printed = collbench("compare", run, "--by", "policy", "--style", "latex").stdout
    assert "a\\textbackslash{}x1b" in printed and "\\x1b" not in printed


@pytest.mark.slow
def test_names_with_control_characters_leave_json_whole(collbench: Program, tmp_path: Path) -> None:
    cells = {made_case(policy, image="a\x7f\x85\x1b\u202eb"): spread(1e-5, 7) for policy in ("host", "single")}
    run = write_run(tmp_path / "a\x7fb", cells)
    for asked in (("show", run), ("compare", run, "--by", "policy"), ("compare", run, twin(run))):
        done = collbench(*asked, "--style", "json")
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout)


def test_a_formula_in_a_name_stays_text_in_a_spreadsheet(collbench: Program, stored_run: Path, tmp_path: Path) -> None:
    run = edited(
        stored_run, tmp_path, lambda record: record["case"]["where"].update(image='=HYPERLINK("http://x","y")')
    )
    (first, *_) = csv.DictReader(collbench("show", run, "--style", "csv").stdout.splitlines())
    assert first["image"] == '\'=HYPERLINK("http://x","y")'
    assert float(first["median_s"]) > 0


@pytest.mark.parametrize("name", ["a\x07b", "\u4f60\ue000", "n" * 512])
def test_names_in_plots_are_no_warning(tmp_path: Path, name: str) -> None:
    """Matplotlib warns of letters that it lacks, as they are, and of names that leave no room: an error in a test."""
    cells = {made_case(policy, image=name): spread(1e-5, 7) for policy in ("host", "single", f"single/{name[:500]}")}
    page = html([chapter(observe(write_run(tmp_path / "run", cells)), {}, 0.02)])
    assert "<svg" in page
    assert "\x07" not in page


def test_a_manifest_larger_than_any_is_refused(stored_run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(stored_run, tmp_path / "copy"))
    os.truncate(copied / "manifest.json", LARGEST_MANIFEST + 1)
    with pytest.raises(RunReadError, match=r"manifest.json: larger than 64 MiB"):
        read_run(copied)


def test_a_baseline_larger_than_any_is_refused_and_not_written(
    stored_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "LARGEST", 1 << 10)
    (tmp_path / "large.json").write_bytes(b" " * (1 << 10) + b"{}")
    with pytest.raises(RunReadError, match=r"large.json: larger than"):
        baseline.load(tmp_path / "large.json")
    with pytest.raises(RunWriteError, match=r"Keep a part of the run"):
        baseline.keep(observe(stored_run), tmp_path / "kept.json")
    assert not (tmp_path / "kept.json").exists()


@pytest.mark.parametrize("twice", ["cell", "launch"])
def test_a_baseline_says_a_thing_once(tmp_path: Path, twice: str) -> None:
    kept = tmp_path / "kept.json"
    baseline.keep(observe(write_run(tmp_path / "run", {made_case(): spread(1e-5, 7)})), kept)
    document = json.loads(kept.read_text())
    if twice == "cell":
        document["cells"] *= 2
    else:
        document["cells"][0]["launches"][1] = 0
    kept.write_text(json.dumps(document))
    with pytest.raises(RunReadError, match="comes twice" if twice == "cell" else "6 different launches, 7 medians"):
        baseline.load(kept)


def test_messages_of_a_run_are_one_line(stored_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunReadError) as refused:
        read_run(edited(stored_run, tmp_path, lambda record: record.update({"a\nb": 1})))
    assert "a\\x0ab" in str(refused.value)
    assert "\n" not in str(RunReadError("a\nb"))


def test_a_pipe_in_place_of_records_is_refused(stored_run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(stored_run, tmp_path / "copy"))
    (copy / "records.jsonl").unlink()
    os.mkfifo(copy / "records.jsonl")
    with pytest.raises(RunReadError, match="not a regular file"):
        read_run(copy)


def test_what_a_run_says_of_itself_is_cut_in_messages(stored_run: Path, tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        record["case"]["driver"] = "A" * 100_000

    with pytest.raises(RunReadError) as refused:
        read_run(edited(stored_run, tmp_path, change))
    assert len(str(refused.value)) < 1100


def test_letters_that_turn_a_text_round_are_written_out() -> None:
    assert harmless("a\u202eb\u2066c\u2028d") == "a\\u202eb\\u2066c\\u2028d"


def test_control_characters_are_written_out() -> None:
    assert harmless("a\x1b[31mb\rc\nd\x9b") == "a\\x1b[31mb\\x0dc\nd\\u009b"


@pytest.mark.parametrize("field", ["work", "samples", "seconds"])
def test_a_measured_case_without_its_numbers_is_refused(stored_run: Path, tmp_path: Path, field: str) -> None:
    def change(record: dict[str, Any]) -> None:
        assert record["status"] == "ok"
        record[field] = None

    with pytest.raises(RunReadError, match=f"line 1: status ok without {field}"):
        read_run(edited(stored_run, tmp_path, change))


@pytest.mark.parametrize(("part", "value"), [("launch", -1), ("launch", 2**63), ("launch", 10**30), ("ranks", 2**40)])
def test_launches_and_ranks_that_no_run_has_are_refused(
    stored_run: Path, tmp_path: Path, part: str, value: int
) -> None:
    def change(record: dict[str, Any]) -> None:
        (record if part == "launch" else record["case"])[part] = value

    with pytest.raises(RunReadError, match=rf"records.jsonl line 1: .*{part}"):
        read_run(edited(stored_run, tmp_path, change))
