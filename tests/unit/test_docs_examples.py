"""The manual's examples and shell lines, carried out."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from tests.contract import oracle
from tests.mpi.jobs import BIN, environment, finish, mpi_vendor, skip_or_fail
from tests.processes import LIMIT
from tests.runs import read_run
from tests.unit import made_packages
from tests.unit.manual import ROOT

from collbench import collectives, workloads
from collbench.collectives.row import fold
from collbench.schema.axes import AXES, DTYPES, OPS
from collbench.schema.case import case_of
from collbench.schema.samples import pack

Collbench = Callable[..., CompletedProcess[str]]

DOCS = Path(__file__).parents[2] / "docs"
EXTENDING = (DOCS / "extending.md").read_text(encoding="utf-8")
FILES = re.findall(r"`src/collbench/([\w/]+)/(\w+)\.py`:\n\n```python\n(.*?)^```", EXTENDING, re.MULTILINE | re.DOTALL)

(ENTRY,) = re.findall(r"^```python\n(Axis\(.*?)^```", EXTENDING, re.MULTILINE | re.DOTALL)

#: collbench with the folders of its first argument searched too, and one more entry in the table of axes, as if the
#: files and the entry stood in the package.
EXTENDED = """\
import sys
from importlib import import_module

folder = sys.argv.pop(1)
from collbench.schema import axes
axes.AXES |= {axis.name: axis for axis in eval(open(f"{folder}/axis.txt").read(), vars(axes))}
for package in ("collectives", "workloads.host", "backends"):
    import_module(f"collbench.{package}").__path__.append(f"{folder}/{package.replace('.', '/')}")
from collbench.cli import main
main()
"""


@pytest.mark.slow
def test_reading_a_run_with_numpy_and_json(collbench: Collbench, tmp_path: Path) -> None:
    done = collbench("allreduce", "--backend", "fake", "-e", "64", "-n", "40", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    page = (DOCS / "record.md").read_text(encoding="utf-8")
    program, _ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (key,) = re.findall(r"`(hashlib\..*?\.hexdigest\(\))`", page, re.DOTALL)
    run = read_run(tmp_path / "run")
    expected = []
    for record in run.records:
        samples = run.samples(record)
        assert samples is not None
        assert record.work is not None
        assert record.samples is not None
        case = msgspec.to_builtins(record.case)
        named = eval(key, {"hashlib": hashlib, "json": json, "case": case})  # noqa: S307 - the page's own code
        assert record.samples.file == f"samples/{named}-0.npy"
        samples[:, samples.max(axis=0) > np.median(samples.max(axis=0))] *= -1  # as if the slower half had been late
        np.save(run.directory / record.samples.file, samples)
        largest = samples.max(axis=0)
        valid = largest[largest > 0] * 1e-9
        assert 0 < len(valid) < 40
        median = np.median(valid)
        algbw = record.work.amount / median / 1e9
        bandwidths = f"algbw {algbw:.3f} GB/s, busbw {algbw * record.work.bus_factor:.3f} GB/s"
        expected.append(
            f"allreduce {record.work.amount} B: {len(valid)} samples, median {median * 1e6:.3f} us, {bandwidths}"
        )
    program += "assert not any(name.startswith(('collbench', 'msgspec')) for name in sys.modules)\n"
    for packed in (False, True):
        if packed:
            pack(tmp_path / "run")
        told = subprocess.run(
            [sys.executable, "-I", "-c", program, tmp_path / "run"],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        ).stdout.splitlines()
        assert told[1:] == expected


@pytest.mark.slow
def test_writing_a_run_with_numpy_and_json(collbench: Collbench, tmp_path: Path) -> None:
    """Its program knows nothing of collbench, and what it writes is read, compared, and agrees with its samples."""
    page = (DOCS / "record.md").read_text(encoding="utf-8")
    _, program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-I", "-c", program, tmp_path / "run"], timeout=60, check=True)
    run = read_run(tmp_path / "run")
    assert len(run.records) == 14
    assert all(run.samples(record) is not None for record in run.records)
    compared = collbench("compare", tmp_path / "run", "--by", "policy", "--style", "json")
    assert (compared.returncode, compared.stderr) == (0, "")
    (found,) = json.loads(compared.stdout)["comparisons"]
    assert (found["verdict"], found["blocks"]) == ("slower", True)
    advised = collbench("advise", tmp_path / "run")
    assert (advised.returncode, advised.stderr) == (0, "")
    assert "take host" in advised.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What follows the interpreter: a program that is collbench with the files of extending.md, and their folder."""
    folder = tmp_path_factory.mktemp("extended")
    for package, name, code in FILES:
        (folder / package).mkdir(parents=True, exist_ok=True)
        (folder / package / f"{name}.py").write_text(code, encoding="utf-8")
    (folder / "site_threads.py").write_text(made_packages.example("A backend")[0], encoding="utf-8")
    (folder / "axis.txt").write_text(ENTRY, encoding="utf-8")
    (folder / "extended.py").write_text(EXTENDED, encoding="utf-8")
    return str(folder / "extended.py"), str(folder)


def start(
    extended: tuple[str, str], environment: dict[str, str], *arguments: str
) -> tuple[CompletedProcess[str], list[dict[str, Any]]]:
    """The extended collbench without a launcher, with the records of its json document."""
    done = subprocess.run(
        [sys.executable, *extended, *arguments, "--style", "json"],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    return done, json.loads(done.stdout)["records"] if done.stdout else []


def right(record: dict[str, Any]) -> bool:
    """Whether a case was measured and every element of its result was what it should be."""
    return bool(record["status"] == "ok" and record["check"] == {"wrong": 0})


@pytest.mark.slow
def test_the_page_shows_one_collective_one_workload_and_an_axis_of_a_backend() -> None:
    assert [(package, name) for package, name, _ in FILES] == [
        ("collectives", "scan"), ("workloads/host", "zeros"), ("backends", "chunked")
    ]  # fmt: skip
    assert "chunk" not in AXES
    assert "scan" not in collectives.names()
    assert "zeros" not in workloads.names()


@pytest.mark.slow
def test_the_new_workload_is_measured_and_compared_by_its_own_axis(
    extended: tuple[str, str], bare_environment: dict[str, str], tmp_path: Path
) -> None:
    (plan,) = re.findall(r"`zeros.toml`:\n\n```toml\n(.*?)^```", EXTENDING, re.MULTILINE | re.DOTALL)
    (tmp_path / "zeros.toml").write_text(plan, encoding="utf-8")
    run = str(tmp_path / "zeros")
    done, records = start(extended, bare_environment, "run", str(tmp_path / "zeros.toml"), "--out", run)
    assert done.returncode == 0, done.stderr
    assert [(record["case"]["what"], record["case"]["how"], record["work"]["amount"]) for record in records] == [
        ({"measure": "copy", "size": size}, {"block": block}, size)
        for block in (4096, 65536)
        for size in (1 << 20, 16 << 20)
    ]
    assert all(map(right, records))
    assert {(record["samples"]["n"], record["work"]["shown"]) for record in records} == {(10, "rate")}
    for command, said in (
        (("compare", run, "--by", "block", "--all"), "65536 vs 4096"),
        (("advise", run, "--given", "block=4096"), "block 4096"),
        (("show", run), "\n  block    size "),
    ):
        told = subprocess.run(
            [sys.executable, *extended, *command],
            env=bare_environment, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert (told.returncode, told.stderr) == (0, "")
        assert "zeros" in told.stdout and said in told.stdout


@pytest.mark.slow
def test_the_check_of_the_new_workload() -> None:
    found: dict[str, Any] = {}
    exec(compile(FILES[1][2], "zeros.py", "exec", dont_inherit=True), found)  # noqa: S102 - the page's own code
    row, case = found["WORKLOAD"], case_of("zeros", {"size": 10_000}).having(block=4096)
    line = "8192 bytes (8.2 kB, 8.0 KiB) copied, 7.3e-05 s, 112 MB/s\n"
    assert (row.parse(line * 2), row.verify(case, line * 2)) == ({"copy": [7.3e-05, 7.3e-05]}, 0)
    assert row.verify(case, line + line.replace("8192", "4096")) == 1
    assert row.parse("dd: out of space\n") == {"copy": []}
    assert row.refuses(case) is None
    assert row.refuses(case.having(block=0)) == "block must be at least 1"


@pytest.mark.slow
def test_the_meaning_of_the_new_collective_is_its_oracle() -> None:
    (block,) = re.findall(r"^   ```python\n(.*?)^   ```", EXTENDING, re.MULTILINE | re.DOTALL)
    second: dict[str, Any] = dict(vars(oracle))
    exec(re.sub("^   ", "", block, flags=re.MULTILINE), second)  # noqa: S102 - the page's own code
    first: dict[str, Any] = {}
    exec(compile(FILES[0][2], "scan.py", "exec", dont_inherit=True), first)  # noqa: S102
    for op in OPS:
        inputs = [[[float(10 * rank + column) for column in range(3)]] for rank in range(4)]
        arrays = [np.array(mine) for mine in inputs]
        found = [first["ROW"].meaning(rank, arrays, 0, fold(op)) for rank in range(4)]
        assert [mine.tolist() for mine in found] == second["scan"](inputs, 0, op)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_new_collective_on_the_fake(
    extended: tuple[str, str], bare_environment: dict[str, str], ranks: int
) -> None:
    flags = ("--backend", "fake", "--ranks", str(ranks), "-d", "all", "-o", "all", "--in-place", "both")
    done, records = start(extended, bare_environment, "scan", *flags, "-b", "4100", "-e", "4100", "-n", "2")
    assert done.returncode == 0, done.stderr
    assert len(records) == len(DTYPES) * len(OPS) * 2
    assert all(map(right, records))


@pytest.mark.slow
def test_a_corrupted_result_of_the_new_collective_is_caught(
    extended: tuple[str, str], bare_environment: dict[str, str]
) -> None:
    done, records = start(extended, bare_environment, "scan", "--backend", "fake", "-n", "2", "--fault", "corrupt:1")
    assert done.returncode == 1
    assert {record["status"] for record in records} == {"failed"}


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("driver", ["native", "python"])
def test_the_new_collective_on_mpi(extended: tuple[str, str], driver: str) -> None:
    assert mpi_vendor() in ("openmpi", "mpich")
    flags = ("-d", "all", "-o", "all", "--in-place", "both", "-b", "4100", "-e", "4100", "-n", "2", "--driver", driver)
    ended = finish(
        [
            str(BIN / "mpirun"),
            "-n",
            "2",
            sys.executable,
            *extended,
            "scan",
            *flags,
            "--align",
            "none",
            "--style",
            "json",
        ]
    )
    assert ended.code == 0, ended.err
    assert all(map(right, ended.records))
    assert {record["driver"] for record in ended.records} == {driver}


def told(extended: tuple[str, str], environment: dict[str, str], *arguments: str) -> CompletedProcess[str]:
    """What the extended collbench prints."""
    return subprocess.run(
        [sys.executable, *extended, *arguments],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


@pytest.fixture
def chunks(tmp_path: Path) -> Path:
    """The plan of the page."""
    (plan,) = re.findall(r"`chunks.toml`:\n\n```toml\n(.*?)^```", EXTENDING, re.MULTILINE | re.DOTALL)
    (tmp_path / "chunks.toml").write_text(plan, encoding="utf-8")
    return tmp_path / "chunks.toml"


@pytest.mark.slow
def test_one_entry_makes_a_key_of_plans_and_a_factor(
    extended: tuple[str, str], bare_environment: dict[str, str], chunks: Path, tmp_path: Path
) -> None:
    run = str(tmp_path / "run")
    done, records = start(extended, bare_environment, "run", str(chunks), "--out", run)
    assert done.returncode == 0, done.stderr
    usual = {"backend": "chunked", "driver": "native", "thread_level": "single"}
    assert [record["case"]["how"] for record in records] == [usual | {"chunk": 1024}, usual | {"chunk": 16384}]
    assert all(map(right, records))
    assert "chunk 16384" in told(extended, bare_environment, "show", run).stdout
    heading, first, _ = told(extended, bare_environment, "show", run, "--style", "csv").stdout.splitlines()
    assert dict(zip(heading.split(","), first.split(","), strict=True))["chunk"] == "1024"
    compared = told(extended, bare_environment, "compare", run, "--by", "chunk", "--style", "json")
    (comparison,) = json.loads(compared.stdout)["comparisons"]
    assert [comparison[side]["name"] for side in ("base", "other")] == ["1024", "16384"]
    advised = told(extended, bare_environment, "advise", run, "--given", "chunk=1024")
    assert (advised.returncode, advised.stderr) == (0, "")


@pytest.mark.slow
def test_one_entry_makes_a_flag_and_a_check(
    extended: tuple[str, str], bare_environment: dict[str, str], chunks: Path
) -> None:
    shown = " ".join(told(extended, bare_environment, "bcast", "--help").stdout.split())
    assert "--chunk N chunked: bytes that are copied at once; 0: all of them. [default: 0]" in shown
    flags = ("-b", "1K", "-e", "1K", "-n", "2", "--align", "none")
    _, (record,) = start(extended, bare_environment, "allreduce", "--backend", "chunked", "--chunk", "64", *flags)
    assert right(record) and record["case"]["how"]["chunk"] == 64
    _, (record,) = start(extended, bare_environment, "allreduce", "--backend", "chunked", *flags)
    assert right(record) and "chunk" not in record["case"]["how"]
    done, (record,) = start(extended, bare_environment, "allreduce", "--backend", "fake", "--chunk", "64", *flags)
    assert done.stderr == "collbench: ignored: backend fake does not use --chunk.\n"
    assert "chunk" not in record["case"]["how"]
    asked = chunks.read_text(encoding="utf-8")
    for changed, message in (("chunks = [-1]", "chunks -1: must be at least 0."), ("chunks = []", "the list is empty"),
                             ("chunk = [1]", "unknown key 'chunk'. Did you mean chunks?"),
                             ('chunks = ["1K"]', 'chunks: expected a whole number, not the string "1K"')):  # fmt: skip
        chunks.write_text(re.sub("chunks = .*", changed, asked), encoding="utf-8")
        refused = told(extended, bare_environment, "run", str(chunks))
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr


# Every shell line of the pages runs as it stands, in a copy of the clone, in the order of its page --------------------

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "results/README.md",
    *(str(path.relative_to(ROOT)) for path in sorted((*ROOT.glob("docs/*.md"), *ROOT.glob("docs/tutorials/*.md")))),
)

INDEX, HOURS, ENGINE = "makes an environment from a package index", "takes too long", "needs an engine"
NIGHTS, MINE = "reads runs of many nights", "needs an image or a library of the reader's"

#: Pattern of a whole `PAGE: LINE`, why this line does not run as it stands, and what runs instead (empty: nothing).
#: The first that matches counts. Lines with the reason ENGINE run as they stand in tests/containers.
OTHERWISE = (
    (r".*: make (demo|test)", INDEX, r"make --dry-run \1"),
    (r".*: (python3 -m venv|(/\S+/)?pip install|\. \S+/bin/activate) ?.*", INDEX, ""),
    (r".*: MPI4PY_BUILD_MPIABI=1 .*pip install .*", INDEX, ""),
    (r".*: collbench (suite|launch) .*-- .*", "needs a program of the reader's", r"collbench \1 --help"),
    (r"CONTRIBUTING.md: \.venvs/\S+ -m pytest .*", "runs the tests", ""),
    (r"CONTRIBUTING.md: (python bench/native_floor\.py) .*", "needs an idle machine", r"\1 --help"),
    (r".*: (collbench image build .*?)( --dry-run)?( +#.*)?", ENGINE + " and a registry", r"\1 --dry-run"),
    (r".*: .*(--backend nccl|choi2021-gpu).*", "needs GPUs", ""),
    (r"docs/extending.md: .*--backend threads.*", "needs the package above it, as test_backends.py does", ""),
    (r"docs/(tutorials/)?cluster.md: (?!collbench plan|collbench launch .* --dry-run|export).*", "needs a cluster", ""),
    (r"docs/(?:tutorials/)?cluster.md: (.*)", "", r"\1"),
    (r"docs/containers.md: collbench launch quick", ENGINE, "collbench plan quick"),
    (r".*: collbench doctor --image .*", ENGINE, ""),
    (r"docs/tutorials/first-hour.md: collbench plan (container.toml)", ENGINE, ""),
    (r"docs/tutorials/first-hour.md: collbench (compare|report) run (.*)", HOURS,
     r"collbench \1 results/one-container \2"),
    (r"docs/tutorials/first-hour.md: collbench launch container.toml .*", HOURS, "collbench plan container.toml"),
    (r"docs/tutorials/gate.md: collbench gate .*", HOURS, "collbench gate --help"),
    (r".*: collbench launch --resume \S+(.*)", HOURS, "collbench launch --help"),
    (r".*: collbench launch (\S+)( --out \S+)?(.*)", HOURS, r"collbench plan \1\3"),
    (r"docs/measure.md: (mpirun|torchrun) .* suite ddp .*", "takes minutes, as tests/mpi/test_ddp.py does", ""),
    (r"docs/measure.md: collbench suite linpack .*", HOURS, "collbench suite linpack --help"),
    (r"docs/commands.md: (mpirun .* -e 64M|torchrun) .*", "docs/measure.md has nearly the same", ""),
    (r"docs/(?:measure|papers).md: (.*) results/paper (.*)", HOURS, r"\1 results/xu2017 \2"),
    (r"docs/measure.md: (.*) results/ddp", HOURS, r"\1 results/ddp-cpu"),
    (r"docs/measure.md: (.*) results/servers (.*)", HOURS, r"\1 results/zhao2018/zhao2018-ps \2"),
    (r"docs/commands.md: (.*) results/tonight (.*)", HOURS, r"\1 results/ladder \2"),
    (r"docs/commands.md: collbench history nightly(.*)", NIGHTS, r"collbench history results\1"),
    (r".*: collbench gate .*(mine:|/build/).*", MINE, ""),
    (r"docs/commands.md: collbench gate gate .*", MINE, ""),
    (r"docs/commands.md: collbench (suite cpu|report (?!results/ladder -o)).*", HOURS, r"collbench \1 --help"),
    (r".*: collbench selftest.*", "takes minutes, as tests/mpi/test_duets.py does", "collbench selftest --help"),
)  # fmt: skip

#: Lines that may end with other codes than 0: what they say depends on the machine, or on what was measured.
CODES = (
    (r".*collbench doctor.*", {0, 1}),
    (r"collbench (compare|history) .*--fail-on.*", {0, 1}),
    (r"collbench gate .*", {0, 1, 4}),
)

#: Longest time of a page (s).
LONGEST = 1500


class Line(NamedTuple):
    """A line of a page: as it stands, what runs, and why that is something else (empty: it is not)."""

    text: str
    runs: str
    why: str


class File(NamedTuple):
    """A new file that a page shows, and names in the line before."""

    name: str
    text: str


def otherwise(page: str, text: str) -> Line:
    """What runs for a line."""
    for pattern, why, instead in OTHERWISE:
        if match := re.fullmatch(pattern, f"{page}: {text}"):
            runs = match.expand(instead)
            return Line(text, runs, "" if runs == text else why)
    return Line(text, text, "")


def contents(page: str) -> list[Line | File]:
    """The shell lines and the files of a page, in order."""
    found: list[Line | File] = []
    text = (ROOT / page).read_text(encoding="utf-8")
    for before, language, block in re.findall(r"([^\n]*\n\n?) *```(\w+)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        code = textwrap.dedent(block)
        names = re.findall(r"`([\w./]+\.(?:py|toml))`", before)
        if language == "sh":
            found += [otherwise(page, line) for line in code.splitlines()]
        elif names and not (ROOT / names[-1]).exists():
            found.append(File(names[-1], code))
    return found


def with_an_engine(page: str) -> list[Line | File]:
    """The lines that need an engine, as they stand."""
    found = [what for what in contents(page) if isinstance(what, Line) and what.why == ENGINE]
    return [line._replace(runs=line.text) for line in found]


def script(lines: list[Line | File], logs: Path) -> str:
    """One shell does them all. Output and exit code of the n-th line are in files of their own."""
    parts = []
    for n, what in enumerate(lines):
        if isinstance(what, File):
            parts.append(f"cat > {what.name} <<'END OF FILE'\n{what.text}END OF FILE\n")
        else:
            parts.append(f"{{\n{what.runs or ':'}\n}} > {logs}/{n}.log 2>&1\necho $? > {logs}/{n}.code\n")
    return "".join(parts)


def copy_of_the_clone(where: Path) -> Path:
    """What git has, and what is built in place. The environments of `make test` are linked."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    ).stdout.split("\0")  # fmt: skip
    built = [str(path.relative_to(ROOT)) for path in ROOT.glob("src/collbench/*/*.so")]
    for name in filter(lambda name: (ROOT / name).is_file(), [*listed, *built]):
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, where / name)
    if (ROOT / ".venvs").exists():
        (where / ".venvs").symlink_to(ROOT / ".venvs")
    return where


def shipped_runs(root: Path) -> dict[str, bytes]:
    """Every file of the runs that come with the clone."""
    tops = [path.parent for path in ROOT.glob("results/*/**/manifest.json")]
    return {
        str(path.relative_to(root)): path.read_bytes()
        for top in tops
        for path in (root / top.relative_to(ROOT)).rglob("*")
        if path.is_file()
    }


def run(lines: list[Line | File], where: Path) -> list[str]:
    """Run lines of a page in a copy of the clone; returns what failed, with the last lines that it printed."""
    clone, logs, home = copy_of_the_clone(where / "clone"), where / "logs", where / "home"
    logs.mkdir()
    home.mkdir()
    variables = environment(
        PATH=f"{BIN}:{os.environ['PATH']}", HOME=str(home), PYTHONPATH=str(clone / "src"), VIRTUAL_ENV=""
    )
    subprocess.run(
        ["bash", "-c", script(lines, logs)],
        cwd=clone, env=variables, stdin=subprocess.DEVNULL, timeout=LONGEST, check=False,
    )  # fmt: skip
    failed = []
    for n, what in enumerate(lines):
        if isinstance(what, Line):
            code = int((logs / f"{n}.code").read_text())
            codes = next((codes for pattern, codes in CODES if re.fullmatch(pattern, what.runs)), {0})
            if code not in codes:
                told = (logs / f"{n}.log").read_text(errors="replace").splitlines()[-5:]
                failed.append("\n".join([f"{what.runs}: exit code {code}", *told]))
    if shipped_runs(clone) != shipped_runs(ROOT):
        failed.append("a shipped run was changed")
    return failed


WITH_LINES = [page for page in PAGES if any(isinstance(what, Line) and what.runs for what in contents(page))]
ALL = [(page, what) for page in PAGES for what in contents(page) if isinstance(what, Line)]


#: What a line writes for later ones.
WRITTEN = re.compile(r"(?:--out|--save-baseline|-o|>|mkdir(?: -p)?) (\S+)")


def with_what_it_reads(lines: list[Line | File], chosen: set[int]) -> list[Line | File]:
    """Lines of a page by number, with all that they need: lines that write what they name, files, `export` and `cd`."""
    needed = set(chosen)
    for n in reversed(range(len(lines))):
        what = lines[n]
        if isinstance(what, File):
            written = [what.name]
        elif re.match(r"export |cd ", what.runs):
            needed.add(n)
            continue
        else:
            written = WRITTEN.findall(what.runs)
        later = [lines[m] for m in needed if m > n]
        if any(name in line.runs for line in later if isinstance(line, Line) for name in written):
            needed.add(n)
    return [lines[n] for n in sorted(needed)]


def skip_unless_for_these_pages() -> None:
    if mpi_vendor() != "openmpi" or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the pages are for Open MPI, and for two cores")
    if not (BIN / "torchrun").exists():
        skip_or_fail("torch", "torch is not installed in this environment")


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.torch
@pytest.mark.parametrize("page", WITH_LINES)
def test_lines_run_as_they_stand(page: str, tmp_path: Path) -> None:
    skip_unless_for_these_pages()
    assert run(contents(page), tmp_path) == []


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.torch
def test_a_tenth_of_the_lines(tmp_path: Path) -> None:
    """Another tenth for each commit, by its time."""
    skip_unless_for_these_pages()
    git = ["git", "log", "-1", "--format=%ct"]
    seed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    numbered = [(page, n) for page in WITH_LINES for n, what in enumerate(contents(page))
                if isinstance(what, Line) and what.runs]  # fmt: skip
    chosen = random.Random(seed).sample(numbered, len(numbered) // 10)  # noqa: S311 - not for a secret
    failed = []
    for page in sorted({page for page, _ in chosen}):
        folder = tmp_path / page.replace("/", "-")
        folder.mkdir()
        lines = {n for of, n in chosen if of == page}
        failed += run(with_what_it_reads(contents(page), lines), folder)
    assert failed == [], f"seed {seed}"


def test_lines_come_with_what_they_read() -> None:
    lines: list[Line | File] = [
        *(Line(text, text, "") for text in ("export A=1", "x --out run", "y --out other")), File("plan.toml", ""),
        *(Line(text, text, "") for text in ("x plan.toml --out of-plan", "z run", "z of-plan")),
    ]  # fmt: skip
    assert [lines.index(what) for what in with_what_it_reads(lines, {5})] == [0, 1, 5]
    assert [lines.index(what) for what in with_what_it_reads(lines, {6})] == [0, 3, 4, 6]


@pytest.mark.slow
@pytest.mark.parametrize("why", sorted({line.why for _, line in ALL if line.why}))
def test_lines_that_do_not_run_as_they_stand(why: str) -> None:
    lines = [f"{page}: {line.text}" + f" -> {line.runs}" * bool(line.runs) for page, line in ALL if line.why == why]
    pytest.skip(f"{why}: {'; '.join(lines)}")


def test_every_exception_is_of_a_line() -> None:
    texts = [f"{page}: {line.text}" for page, line in ALL]
    unused = [pattern for pattern, _, _ in OTHERWISE if not any(re.fullmatch(pattern, text) for text in texts)]
    assert unused == []
    assert len(texts) > 80


def test_every_extra_that_a_page_installs_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    wanted = {
        extra
        for page in PAGES
        for listed in re.findall(r"\.\[([\w,-]+)\]'", (ROOT / page).read_text(encoding="utf-8"))
        for extra in listed.split(",")
    }
    assert wanted and wanted <= extras.keys()
