"""The examples of the manual, as they stand there, do what it says: reading a run, a new collective, a new workload.

What other packages add is tested in test_backends.py and test_policies.py.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.contract import oracle
from tests.mpi.jobs import BIN, finish, mpi_vendor
from tests.processes import LIMIT
from tests.unit import made_packages

from collbench import collectives, workloads
from collbench.collectives.row import fold
from collbench.schema.axes import AXES, DTYPES, OPS
from collbench.schema.case import case_of
from collbench.schema.samples import pack
from collbench.schema.store import read_run

pytestmark = pytest.mark.slow

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


def test_the_page_shows_one_collective_one_workload_and_an_axis_of_a_backend() -> None:
    assert [(package, name) for package, name, _ in FILES] == [
        ("collectives", "scan"), ("workloads/host", "zeros"), ("backends", "chunked")
    ]  # fmt: skip
    assert "chunk" not in AXES
    assert "scan" not in collectives.names()
    assert "zeros" not in workloads.names()


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


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_new_collective_on_the_fake(
    extended: tuple[str, str], bare_environment: dict[str, str], ranks: int
) -> None:
    flags = ("--backend", "fake", "--ranks", str(ranks), "-d", "all", "-o", "all", "--in-place", "both")
    done, records = start(extended, bare_environment, "scan", *flags, "-b", "4100", "-e", "4100", "-n", "2")
    assert done.returncode == 0, done.stderr
    assert len(records) == len(DTYPES) * len(OPS) * 2
    assert all(map(right, records))


def test_a_corrupted_result_of_the_new_collective_is_caught(
    extended: tuple[str, str], bare_environment: dict[str, str]
) -> None:
    done, records = start(extended, bare_environment, "scan", "--backend", "fake", "-n", "2", "--fault", "corrupt:1")
    assert done.returncode == 1
    assert {record["status"] for record in records} == {"failed"}


@pytest.mark.mpi
@pytest.mark.parametrize("driver", ["native", "python"])
def test_the_new_collective_on_mpi(extended: tuple[str, str], driver: str) -> None:
    assert mpi_vendor() in ("openmpi", "mpich")
    flags = ("-d", "all", "-o", "all", "--in-place", "both", "-b", "4100", "-e", "4100", "-n", "2", "--driver", driver)
    ended = finish(
        [str(BIN / "mpirun"), "-n", "2", sys.executable, *extended, "scan", *flags, "--gate", "none", "--style", "json"]
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


def test_one_entry_makes_a_flag_and_a_check(
    extended: tuple[str, str], bare_environment: dict[str, str], chunks: Path
) -> None:
    shown = " ".join(told(extended, bare_environment, "bcast", "--help").stdout.split())
    assert "--chunk N chunked: bytes that are copied at once; 0: all of them. [default: 0]" in shown
    flags = ("-b", "1K", "-e", "1K", "-n", "2", "--gate", "none")
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
