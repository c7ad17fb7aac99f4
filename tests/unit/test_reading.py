"""Reading runs: each record once, anywhere, from files that are named strangely or written by somebody else."""

from __future__ import annotations

import copy
import csv
import json
import os
import re
import shlex
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
from tests.runs import read_run
from tests.unit.conftest import Collbench
from tests.unit.made_runs import experiment, made_case, made_manifest, made_record, sampled, spread, twin, write_run

from collbench import collectives
from collbench.analysis import runs
from collbench.analysis.runs import load_baseline, observe, save_baseline
from collbench.cli import ANYWHERE, COMMANDS, cli
from collbench.errors import RunReadError, RunWriteError, in_lines
from collbench.report.page.contents import chapter
from collbench.report.page.figures import SamplesByLaunch, StoredSamples
from collbench.report.page.render import html
from collbench.report.tables import Table, csv_text, latex
from collbench.schema import manifest as manifests
from collbench.schema import record as records
from collbench.schema.manifest import LARGEST_MANIFEST
from collbench.schema.samples import pack
from collbench.schema.store import RunWriter

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
    lines: list[str] = []
    real = records.decode

    def counting(line: bytes, what: str = "record", number: int = 0) -> records.Record:
        lines.append(f"{what} {number}")
        return real(line, what, number)

    monkeypatch.setattr(records, "decode", counting)
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("command", ["report run -o report.html", "report run -o report.md", "compare run --by image",
                                     "advise run", "model run", "show run"])  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_a_command_decodes_each_record_once(run: Path, decoded: list[str], command: str, packed: bool) -> None:
    if packed:
        pack(run)
    cli.main(command.split(), "collbench", standalone_mode=False)
    assert len(decoded) == len(set(decoded)) == RECORDS


def test_two_runs_are_decoded_once_each(run: Path, decoded: list[str]) -> None:
    twin(run)
    cli.main(["compare", "run", "run-twin"], "collbench", standalone_mode=False)
    assert len(decoded) == len(set(decoded)) == 2 * RECORDS


def figures(run: Path) -> list[Any]:
    return [figure for section in chapter(observe(run), {}, 0.02).sections for figure in section.folded]


def test_a_report_opens_an_archive_for_its_check_and_for_its_plots(run: Path) -> None:
    """Not for each plot: it may have a million members."""
    pack(run)
    with patch.object(zipfile, "ZipFile", wraps=zipfile.ZipFile) as opened:
        assert len(figures(run)) == len(SIZES)
    assert opened.call_count == 2


def drawn(run: Path, step: int = 1, **most: int) -> dict[str, SamplesByLaunch]:
    """What a plot of 8 B draws: every sample, or every `step`th of more than `most`."""
    with StoredSamples(observe(run)) as stored:
        samples = stored.of({image: made_case(image=image, size=8) for image in ("a", "b")}, **most)
    assert (samples.unread, samples.step) == (0, step)
    return samples.samples


def same(one: dict[str, SamplesByLaunch], other: dict[str, SamplesByLaunch]) -> bool:
    return list(one) == list(other) and all(
        list(one[name]) == list(other[name]) and all((one[name][n] == other[name][n]).all() for n in one[name])
        for name in one
    )


def test_plots_of_a_packed_run_are_those_of_its_files_whatever_they_are_named(run: Path) -> None:
    """Names are collbench's own where it wrote the run; another program's are as good."""
    before = drawn(run)
    assert [len(values) for values in before["a"].values()] == [50] * LAUNCHES
    packed = twin(run)
    pack(packed)
    assert same(drawn(packed), before)
    lines = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(lines.replace("samples/", "samples/other_"))
    for path in (run / "samples").iterdir():
        path.rename(path.with_name(f"other_{path.name}"))
    assert same(drawn(run), before)


def test_of_very_many_samples_some_are_drawn_and_the_plot_says_so(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: of 12 launches with 50 samples each, 100 in all."""
    every = {name: {n: values[::6] for n, values in launches.items()} for name, launches in drawn(run).items()}
    assert same(drawn(run, step=6, most=100), every)
    monkeypatch.setattr(StoredSamples.of, "__defaults__", (100,))
    assert ["in 6 of" in figure.caption for figure in figures(run)] == [True] * len(SIZES)


def test_launches_of_a_folder_of_runs_are_drawn_in_their_order(run: Path, tmp_path: Path) -> None:
    """Each run is one launch or more, and keeps its samples in an archive of its own."""
    (tmp_path / "runs").mkdir()
    for name in ("first", "second"):
        twin(run).rename(tmp_path / "runs" / name)
    pack(tmp_path / "runs" / "second")
    launches = drawn(tmp_path / "runs")["a"]
    assert list(launches) == list(range(2 * LAUNCHES))
    assert all((launches[launch] == launches[launch + LAUNCHES]).all() for launch in range(LAUNCHES))


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


def without_unix(*arguments: str | Path, **variables: str) -> str:
    """What the program prints there."""
    done = subprocess.run([sys.executable, PROGRAM, *arguments], env=os.environ | variables, capture_output=True,
                          text=True, timeout=LIMIT, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("command", "answer"), [
    ("show RUN", "median (us)"), ("show RUN --style json", '"records"'), ("compare RUN --by policy", "slower"),
    ("advise RUN", "host"), ("model RUN", "%"), ("report RUN --against choi2021 -o report.html", "choi2021"),
    ("report RUN --against choi2021 -o report.md", "choi2021"),
])  # fmt: skip
def test_a_run_is_read_without_unix(run_elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str,
                                    answer: str) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    printed = without_unix(*command.replace("RUN", str(run_elsewhere)).split())
    assert answer in printed + "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())


@pytest.mark.slow
def test_a_baseline_is_kept_and_held_against_without_unix(run_elsewhere: Path, tmp_path: Path) -> None:
    assert "18 cells" in without_unix("compare", run_elsewhere, "--save-baseline", tmp_path / "baseline.json")
    other = twin(Path(shutil.copytree(run_elsewhere, tmp_path / "other")))
    assert "same" in without_unix("compare", other, "--baseline", tmp_path / "baseline.json")


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", "macos"])
def test_every_command_has_help_and_what_measures_says_what_it_needs(system: str) -> None:
    names = [*(name for name, _, _ in COMMANDS), *collectives.names()]
    commands = [*(f"{name} --help" for name in names), "--help", "image build --help", "plan", "plan quick", "list",
                "completion bash", *(name for name in names if name not in ANYWHERE)]  # fmt: skip
    answers = list(map(json.loads, without_unix(*" THEN ".join(commands).split(), SYSTEM=system).splitlines()))
    assert [answer[0] for answer in answers] == commands
    for command, code, out, err in answers:
        needs_linux = " " not in command and command.lstrip("-") not in {"help", *ANYWHERE}
        assert (code, bool(out), err.count("\n")) == ((2, False, 1) if needs_linux else (0, True, 0)), (command, err)
        assert not needs_linux or (command in err and "Linux" in err)


# Files that commands are given ----------------------------------------------------------------------------------------

DEEP = "[" * 100_000

#: What is refused: names that are empty (never this folder), a site file that the engine would not read, files that are
#: nested too deep, a run without records, a link that leads to itself, and a pipe that nobody writes to or reads.
UNREADABLE = (
    *(f"{command} ''" for command in ("show", "advise", "report", "history", "pack", "launch", "plan", "run", "gate")),
    "compare '' x", *(f"launch quick {flag} ''" for flag in ("--out", "--resume", "--site", "--docker-host")),
    "gate quick --other image=a --out ''", "compare x --save-baseline ''", "selftest --out ''", "allreduce --out ''",
    "launch plan.toml --dry-run --site none", "plan plan.toml --on docker --site none",
    "plan plan.toml --on podman --site none", "launch --sweep --on fake --site none", "plan deep.json",
    "plan deep.toml", "show deep", "show empty --style table", "show empty --style csv", "allreduce -J a --out loop",
    "run quick -J loop", "show loop", "compare loop loop", "history loop/x", "report loop -o a.md", "launch pipe",
    "plan pipe", "run pipe", "launch plan.toml --on slurm --site pipe", "gate pipe", "run plan.toml --placement pipe",
    "gate plan.toml --other lib=pipe", "show pipe", "allreduce -n 1 -e 8 --backend fake -J pipe"
)  # fmt: skip


@pytest.mark.timeout(120)
def test_files_that_cannot_be_read_are_refused_in_one_line(
    here: Collbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text('collectives = ["allreduce"]\nsizes = ["8"]\nimages = ["openmpi"]\n'
                                 'policies = ["host"]\nengine = "fake"\n')  # fmt: skip
    Path("deep.json").write_text(f'{{"sizes": {DEEP}')
    Path("deep.toml").write_text(f"sizes = {DEEP}")
    (write_run(tmp_path / "deep", {made_case(): [1e-6]}) / "records.jsonl").write_text(f'{{"case": {DEEP}\n')
    write_run(tmp_path / "empty", {})
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    files, text = sorted(tmp_path.iterdir()), ""
    for command in UNREADABLE:
        code, out, err = here(*shlex.split(command))
        assert (code, err.count("\n")) == (1 if command.endswith("-J pipe") else 2, 1), (command, err)
        assert not out or code == 1
        assert sorted(tmp_path.iterdir()) == files, command
        text += f"# {command}\n{err.replace(str(tmp_path), 'DIR')}"
    golden("files-refused.txt", text)


def test_characters_that_would_change_a_line_are_written_out() -> None:
    """Bytes of a name that are no characters are shown as bytes; letters that turn a text round are written out."""
    texts = {"caf\udce9": "caf\\xe9", "a\u202eb\u2066c\u2028d": "a\\u202eb\\u2066c\\u2028d",
             "a\x1b[31mb\rc\nd\x9b": "a\\x1b[31mb\\x0dc\nd\\u009b"}  # fmt: skip
    assert [in_lines(text) for text in texts] == list(texts.values())


# A run is somebody's file ---------------------------------------------------------------------------------------------

Program = Callable[..., CompletedProcess[str]]


def edited(stored: Path, where: Path, **fields: Any) -> Path:
    """A copy of a run of whose first record fields are changed: `case__root` is the root of its case."""
    copied = Path(shutil.copytree(stored, where / "copy"))
    first, *others = (copied / "records.jsonl").read_text().splitlines()
    record = json.loads(first)
    for place, value in fields.items():
        part, (*way, field) = record, place.split("__")
        for name in way:
            part = part[name]
        part[field] = value
    (copied / "records.jsonl").write_text("\n".join([json.dumps(record), *others]) + "\n")
    return copied


#: Of a measured case: values that no field has, and what the message names.
IMPOSSIBLE = (
    *((field, value, "") for field, values in {
        "samples__invalid": (10**400, 1001, 1000), "work__bus_factor": (1e308, -1.0), "seconds__p50": (1e300, -1.0),
        "case__bytes": (-1,), "work__bytes": (10**400, -1), "case__root": (-1, 4), "check__wrong": (-5,),
        "samples__n": (0,), "samples__warmup": (-1,), "ranks__p50": ([-1.0],),
    }.items() for value in values),
    *(("launch", value, "launch") for value in (-1, 2**63, 10**30)),
    *(("case__ranks", value, "ranks") for value in (-3, 0, 2**40)),
    *(("burst", value, "burst") for value in (-7, 0)),
    # Plots lay every letter of a name out: of hundreds of thousands for minutes.
    *((f"case__{name}", "n" * 513, "512")
      for name in ("workload", "where__image", "where__policy", "where__isolation", "what__dtype")),
    *((field, None, field) for field in ("work", "samples", "seconds")),
)  # fmt: skip


@pytest.mark.parametrize(("field", "value", "named"), IMPOSSIBLE)
def test_impossible_values_of_a_record_are_refused(stored_run: Path, tmp_path: Path, field: str, value: Any,
                                                   named: str) -> None:  # fmt: skip
    with pytest.raises(RunReadError, match=rf"records.jsonl line 1: .*{named}"):
        read_run(edited(stored_run, tmp_path, **{field: value}))


def test_impossible_numbers_of_a_manifest_are_refused(stored_run: Path) -> None:
    whole = json.loads((stored_run / "manifest.json").read_text())
    for part, field, value in (("protocol", "timeout", -1.0), ("protocol", "warmup", -1), ("host", "cores", -4),
                               ("host", "memory", -1), ("host", "ranks", [-1])):  # fmt: skip
        changed = copy.deepcopy(whole)
        (changed["hosts"][0] if part == "host" else changed[part])[field] = value
        with pytest.raises(RunReadError, match=field):
            manifests.decode(json.dumps(changed).encode())


@pytest.mark.parametrize("fields", [{"check__wrong": 17}, {"status": "failed", "reason": "died"}])
def test_what_failed_has_no_times(stored_run: Path, tmp_path: Path, fields: dict[str, Any]) -> None:
    """A wrong result whatever its status says: nothing that reads a run takes its times for times of the operation."""
    wrong = "check__wrong" in fields
    run = edited(stored_run, tmp_path, **fields)
    first = read_run(run).records[0]
    assert (first.status, first.seconds) == ("failed", None)
    cell = observe(run).cells[first.case]
    assert (list(cell.medians), cell.failed, cell.wrong) == ([], 1, int(wrong))
    assert not wrong or (first.ranks is None and " 17 " in str(first.reason))


FORGED = "openmpi\nopenmpi  single vs host  8  same"


def two_policies(path: Path, image: str) -> Path:
    return write_run(path, {made_case(policy, image=image): spread(1e-5, 7) for policy in ("host", "single")})


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    *(f"show STORED --style {style}" for style in ("table", "osu", "nccl-tests", "csv")),
    *(f"compare MADE --by policy --all --style {style}" for style in ("table", "csv", "markdown", "latex")),
])  # fmt: skip
def test_a_name_does_not_begin_a_line(collbench: Program, stored_run: Path, tmp_path: Path, command: str) -> None:
    runs = {"STORED": edited(stored_run, tmp_path, case__where__image=FORGED),
            "MADE": two_policies(tmp_path / "run", FORGED)}  # fmt: skip
    done = collbench(*(runs.get(word, word) for word in command.split()))
    assert done.returncode == 0, done.stderr
    assert "x0aopenmpi" in done.stdout
    assert not re.search(r"^\W*openmpi  ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("style", ["json", "table", "csv"])
def test_a_run_whose_name_is_no_text_is_named_in_every_style(collbench: Program, tmp_path: Path, style: str) -> None:
    run = two_policies(tmp_path / "run", "a").rename(tmp_path / "caf\udce9")
    other = two_policies(tmp_path / "other", "a")
    for words in (("compare", run, other), ("advise", run), ("compare", run, "--save-baseline", tmp_path / style)):
        done = collbench(*words, *(() if "--save-baseline" in words else ("--style", style)))
        assert done.returncode == 0, done.stderr
    assert "caf" in (tmp_path / style).read_text(encoding="utf-8")


def test_a_table_without_columns_is_no_tabular_of_latex() -> None:
    assert "tabular" not in latex([Table("guidelines", (), ())])
    assert "tabular" in latex([Table("guidelines", ("a",), (("1",),))])


def test_latex_has_control_characters_written_out_and_compiles(collbench: Program, tmp_path: Path) -> None:
    run = two_policies(tmp_path / "run", "a\x1b[31mb\n")
    printed = collbench("compare", run, "--by", "policy", "--style", "latex").stdout
    assert "a\\textbackslash{}x1b" in printed and "\\x1b" not in printed


@pytest.mark.slow
def test_names_with_control_characters_leave_json_whole(collbench: Program, tmp_path: Path) -> None:
    run = two_policies(tmp_path / "a\x7fb", "a\x7f\x85\x1b\u202eb")
    for command in (("show", run), ("compare", run, "--by", "policy"), ("compare", run, twin(run))):
        done = collbench(*command, "--style", "json")
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout)


def test_a_formula_in_a_name_stays_text_in_a_spreadsheet(collbench: Program, stored_run: Path, tmp_path: Path) -> None:
    run = edited(stored_run, tmp_path, case__where__image='=HYPERLINK("http://x","y")')
    (first, *_) = csv.DictReader(collbench("show", run, "--style", "csv").stdout.splitlines())
    assert first["image"] == '\'=HYPERLINK("http://x","y")'
    assert float(first["median_s"]) > 0


def test_a_formula_in_a_heading_stays_text_in_a_spreadsheet() -> None:
    heading, row = csv.reader(csv_text([Table("sides", ("=1+1", "-O3"), (("+2", "@a"),))]).splitlines())
    assert (heading, row) == (["table", "'=1+1", "'-O3"], ["sides", "+2", "'@a"])


@pytest.mark.parametrize("name", ["a\x07b", "\u4f60\ue000", "n" * 512])
def test_names_in_plots_are_no_warning(tmp_path: Path, name: str) -> None:
    """Matplotlib warns of letters that it lacks, as they are, and of names that leave no room: an error in a test."""
    cells = {made_case(policy, image=name): spread(1e-5, 7) for policy in ("host", "single", f"single/{name[:500]}")}
    page = html([chapter(observe(write_run(tmp_path / "run", cells)), {}, 0.02)])
    assert "<svg" in page
    assert "\x07" not in page


def test_files_larger_than_any_are_refused_and_not_written(stored_run: Path, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    copied = Path(shutil.copytree(stored_run, tmp_path / "copy"))
    os.truncate(copied / "manifest.json", LARGEST_MANIFEST + 1)
    with pytest.raises(RunReadError, match=r"manifest.json: .* 64 MiB"):
        read_run(copied)
    monkeypatch.setattr(runs, "LARGEST_BASELINE", 1 << 10)
    (tmp_path / "large.json").write_bytes(b" " * (1 << 10) + b"{}")
    with pytest.raises(RunReadError, match=r"large.json: .* 0 MiB"):
        load_baseline(tmp_path / "large.json")
    with pytest.raises(RunWriteError):
        save_baseline(observe(stored_run), tmp_path / "kept.json")
    assert not (tmp_path / "kept.json").exists()


@pytest.mark.parametrize(("twice", "named"), [("cell", "twice"), ("launch", r"\b6 .* 7 medians")])
def test_a_baseline_says_a_thing_once(tmp_path: Path, twice: str, named: str) -> None:
    kept = tmp_path / "kept.json"
    save_baseline(observe(write_run(tmp_path / "run", {made_case(): spread(1e-5, 7)})), kept)
    document = json.loads(kept.read_text())
    if twice == "cell":
        document["cells"] *= 2
    else:
        document["cells"][0]["launches"][1] = 0
    kept.write_text(json.dumps(document))
    with pytest.raises(RunReadError, match=named):
        load_baseline(kept)


def test_messages_of_a_run_are_one_line_of_bounded_length(stored_run: Path, tmp_path: Path) -> None:
    """A pipe in place of records is refused."""
    assert "\n" not in str(RunReadError("a\nb"))
    for number, (fields, named) in enumerate((({"a\nb": 1}, "a\\x0ab"), ({"A" * 100_000: 1}, "AAA"))):
        with pytest.raises(RunReadError) as refused:
            read_run(edited(stored_run, tmp_path / str(number), **fields))
        assert named in str(refused.value) and "\n" not in str(refused.value) and len(str(refused.value)) < 1100
    copied = Path(shutil.copytree(stored_run, tmp_path / "copy"))
    (copied / "records.jsonl").unlink()
    os.mkfifo(copied / "records.jsonl")
    with pytest.raises(RunReadError, match="regular file"):
        read_run(copied)
