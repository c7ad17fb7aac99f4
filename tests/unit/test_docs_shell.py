"""Every shell line of the pages runs as it stands, in a copy of the clone, in the order of its page.

`OTHERWISE` lists the lines that do not, each with the reason and with what runs in its place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.mpi.jobs import BIN, environment, mpi_vendor, skip_or_fail
from tests.unit.manual import ROOT

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "results/README.md",
    *(f"docs/{path.name}" for path in sorted(ROOT.glob("docs/*.md"))),
)

INDEX, HOURS, ENGINE = "makes an environment from a package index", "takes too long", "needs an engine"
NIGHTS, MINE = "reads runs of many nights", "needs an image or a library of the reader's"

#: Pattern of a whole `PAGE: LINE`, why this line does not run as it stands, and what runs instead (empty: nothing).
#: The first that matches counts. Lines with the reason ENGINE run as they stand in tests/containers.
OTHERWISE = (
    (r".*: sudo apt-get .*", "installs packages of the system", ""),
    (r".*: make (demo|test)", INDEX, r"make --dry-run \1"),
    (r".*: (python3 -m venv|(/\S+/)?pip install|\. \S+/bin/activate) ?.*", INDEX, ""),
    (r"CONTRIBUTING.md: \.venvs/\S+ -m pytest .*", "runs the tests", ""),
    (r"CONTRIBUTING.md: (python bench/native_floor\.py) .*", "needs an idle machine", r"\1 --help"),
    (r".*: (collbench image build .*?)( --dry-run)?( +#.*)?", ENGINE + " and a registry", r"\1 --dry-run"),
    (r".*: .*(--backend nccl|choi2021-gpu).*", "needs GPUs", ""),
    (r"docs/extending.md: .*--backend threads.*", "needs the package above it, as test_backends.py does", ""),
    (r"docs/cluster.md: (?!collbench plan|collbench launch .* --dry-run|export).*", "needs a cluster", ""),
    (r"docs/cluster.md: (.*)", "", r"\1"),
    (r"docs/containers.md: collbench launch quick", ENGINE, "collbench plan quick"),
    (r".*: collbench doctor --image .*", ENGINE, ""),
    (r".*: collbench launch --resume \S+(.*)", HOURS, "collbench launch --help"),
    (r".*: collbench launch (\S+)( --out \S+)?(.*)", HOURS, r"collbench plan \1\3"),
    (r"README.md: (mpirun|torchrun) .* suite ddp .*", "takes minutes, as tests/mpi/test_ddp.py does", ""),
    (r"README.md: collbench suite linpack .*", HOURS, "collbench suite linpack --help"),
    (r"docs/commands.md: (mpirun .* -e 64M|torchrun) .*", "README.md has nearly the same", ""),
    (r"(README|docs/papers).md: collbench report results/xu2017 .*", HOURS,
     "collbench report results/xu2017-cpu-io results/train-cpu --against xu2017 -o xu2017.html"),
    (r"docs/papers.md: collbench compare results/xu2017 .*", HOURS,
     "collbench compare results/xu2017-cpu-io results/train-cpu --against xu2017 --all"),
    (r"README.md: (.*) results/xu2017 (.*)", HOURS, r"\1 results/xu2017-cpu-io \2"),
    (r"README.md: (.*) results/ddp", HOURS, r"\1 results/ddp-cpu"),
    (r"README.md: (.*) results/servers (.*)", HOURS, r"\1 results/zhao2018-ps \2"),
    (r"docs/commands.md: (.*) results/tonight (.*)", HOURS, r"\1 results/ladder \2"),
    (r"docs/commands.md: collbench history nightly(.*)", NIGHTS, r"collbench history results\1"),
    (r".*: collbench gate .*(mine:|/build/).*", MINE, ""),
    (r"docs/commands.md: collbench gate gate .*", MINE, ""),
    (r"docs/commands.md: collbench (suite cpu|report (?!results/ladder -o)).*", HOURS, r"collbench \1 --help"),
    (r".*: collbench selftest.*", "takes minutes, as tests/mpi/test_selftest.py does", "collbench selftest --help"),
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


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.one_mpi
@pytest.mark.torch
@pytest.mark.parametrize("page", WITH_LINES)
def test_lines_run_as_they_stand(page: str, tmp_path: Path) -> None:
    if mpi_vendor() != "openmpi" or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the pages are for Open MPI, and for two cores")
    if not (BIN / "torchrun").exists():
        skip_or_fail("torch", "torch is not installed in this environment")
    assert run(contents(page), tmp_path) == []


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
