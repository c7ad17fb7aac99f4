"""The Python interface: columns of runs, comparisons and advice, and what they show themselves as."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.manual import rows, section

import collbench
from collbench.api import ADVICE, array
from collbench.errors import RequestError, RunReadError
from collbench.schema.axes import AXES
from collbench.schema.store import RecordStream

ROOT = Path(__file__).parents[2]
RUN, DEMO = ROOT / "results" / "one-container", ROOT / "results" / "demo-openmpi"
UNCLEAR = ROOT / "results" / "xu2017" / "xu2017-io"


def test_importing_it_imports_nothing_that_reads_runs() -> None:
    program = "import sys, collbench; print('numpy' in sys.modules, collbench.__version__, callable(collbench.load))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", collbench.__version__, "True"]
    with pytest.raises(AttributeError):
        collbench.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_run_is_columns_with_a_row_for_each_record() -> None:
    run, records = collbench.load(RUN), list(RecordStream(RUN))
    assert len(run) == len(records) > 100
    assert {len(run[name]) for name in run} == {len(records)}
    assert {"launch", "status", "workload", "size", "image", "policy", "median", "busbw", "contended"} <= set(run)
    assert run["launch"].dtype == np.int64 and run["median"].dtype == np.float64 and run["contended"].dtype == bool
    assert run["workload"].tolist() == [record.case.workload for record in records]
    assert run["policy"].tolist() == [record.case.where.policy for record in records]
    assert run["median"].tolist() == [record.seconds and record.seconds.p50 for record in records]
    assert "dtype" in run and "run" not in run


def test_samples_are_those_of_the_record() -> None:
    run = collbench.load(DEMO)
    for row in range(len(run)):
        samples, by_rank = run.samples(row), run.samples(row, by_rank=True)
        assert len(samples) == run["samples"][row] - run["late"][row]
        assert by_rank.shape == (run["ranks"][row], run["samples"][row])
        assert np.median(samples) == pytest.approx(run["median"][row], rel=0.01)
        assert np.nanmax(by_rank) == pytest.approx(samples.max())
        assert np.isnan(by_rank).any(axis=0).sum() == run["late"][row]


def test_of_a_folder_with_runs_each_row_names_its_run() -> None:
    found = collbench.load(ROOT / "results")
    assert {"one-container", "demo-openmpi"} <= set(found["run"])
    with pytest.raises(RunReadError):
        collbench.load(ROOT / "docs")


@pytest.mark.parametrize(
    ("values", "dtype", "column"),
    [
        ([1, 2], np.int64, [1, 2]), ([1, None], np.float64, [1.0, math.nan]), ([1, 2.5], np.float64, [1.0, 2.5]),
        ([True, False], np.bool_, [True, False]), ([True, None], object, [True, None]),
        (["a", None], object, ["a", None]), (["a", 1], object, ["a", "1"]), ([], object, []),
    ],
)  # fmt: skip
def test_the_type_of_a_column(values: list[Any], dtype: Any, column: list[Any]) -> None:
    made = array(values)
    assert made.dtype == dtype
    assert all(one == other or (one != one and other != other) for one, other in zip(made, column, strict=True))


def test_a_comparison_is_that_of_the_command(here: Collbench) -> None:
    compared = collbench.compare(RUN, by="policy", given={"image": "openmpi"})
    assert len(compared) == 8
    assert set(compared["verdict"]) == {"same", "slower"}
    assert (compared["low"] <= compared["ratio"]).all() and (compared["ratio"] <= compared["high"]).all()
    slowest = compared["ratio"].argmax()
    assert (compared["workload"][slowest], compared["size"][slowest], compared["other_place"][slowest]) == (
        "bcast", 1 << 20, "multi strict"
    )  # fmt: skip
    assert compared["other_median"][slowest] > 1.5 * compared["base_median"][slowest]
    printed = here("compare", RUN, "--by", "policy", "--given", "image=openmpi").out
    assert str(compared).splitlines()[0] == printed.splitlines()[0]
    html = compared._repr_html_()
    assert html.count("<table>") == html.count("</table>") > 1 and "multi strict" in html
    assert not re.search(r"<script|<b>", html)


def test_advice_is_that_of_the_command(here: Collbench) -> None:
    advised = collbench.advise(RUN)
    assert set(advised) >= {"operation", "from", "to", "take", "at_most"}
    assert set(advised["ranks"]) == {2} and set(advised["workload"]) == {"allreduce", "bcast"}
    assert set(collbench.compare(RUN, by="policy", given={"size": 8})["size"]) == {8}
    assert (advised["from"] <= advised["to"]).all() and (advised["at_most"] >= 1).all()
    assert str(advised).split() == here("advise", RUN).out.split()


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"runs": (RUN, RUN)}, {"runs": (RUN,)}, {"runs": (RUN,), "by": "nothing"},
        {"runs": (RUN,), "by": ["policy"]}, {"runs": (RUN,), "by": "policy", "given": "image=openmpi"},
        *({"runs": (RUN,), "by": "policy", "margin": of} for of in (-1, 1, 5, "5%")),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(arguments: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        collbench.compare(*arguments.get("runs", ()), **{key: of for key, of in arguments.items() if key != "runs"})


def test_what_is_missing_of_a_run_is_a_warning(tmp_path: Path) -> None:
    cut, empty, stopped = (Path(shutil.copytree(run, tmp_path / name))
                           for run, name in ((DEMO, "cut"), (DEMO, "empty"), (RUN, "stopped")))  # fmt: skip
    lines = (DEMO / "records.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "records.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:50])
    with pytest.warns(UserWarning, match="cut"):
        assert len(collbench.load(cut)) == len(lines) - 1
    (empty / "records.jsonl").write_bytes(b"")
    with pytest.raises(RunReadError):
        collbench.load(empty)
    every = (RUN / "records.jsonl").read_bytes().splitlines(keepends=True)
    first = [line for line in every if json.loads(line)["launch"] < 20]
    (stopped / "records.jsonl").write_bytes(b"".join(first))
    with pytest.warns(UserWarning, match="stopped"):
        assert set(collbench.advise(stopped)) == set(ADVICE)


@pytest.mark.parametrize("run", [RUN, UNCLEAR], ids=["decided", "unclear"])
def test_every_run_has_the_columns_of_the_manual(run: Path) -> None:
    """Apart from axes, of which each run has its own."""
    loaded = collbench.load(run)
    axes = {"run", *AXES, *(axis for _, record in loaded.files for axis in (*record.case.what, *record.case.how))}
    for name, table in {"load": loaded, "compare": collbench.compare(run, by="policy")}.items():
        documented = rows(section("python.md", name), "column", "meaning")
        named = {column for cell in documented for column in re.findall(r"`(\w+)`", cell)}
        assert named - axes == set(table) - axes, name


def test_what_lies_under_the_files_is_a_column() -> None:
    compared = collbench.compare(ROOT / "results" / "storage-workloads", by="policy")
    assert set(compared["storage"]) == {"overlay", "volume", "bind", "tmpfs"}
    assert "storage" not in collbench.compare(RUN, by="policy")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library: str) -> None:
    pytest.importorskip(library)
    for table in (collbench.load(RUN), collbench.compare(RUN, by="policy")):
        frame = getattr(table, f"to_{library}")()
        assert list(frame.columns) == list(table) and len(frame) == len(table)
        assert frame["size"].to_list() == table["size"].tolist()
        number, word = ("median", "policy") if "median" in table else ("ratio", "verdict")
        assert frame[number].max() == table[number].max()
        assert set(frame[word]) == set(table[word])


def test_a_long_table_shows_its_first_rows() -> None:
    run = collbench.load(RUN)
    assert len(str(run).splitlines()) < 200 and "dtype float32" in str(run).replace("\n  ", " ")
    assert f"{len(run)} rows" in str(run) and len(repr(run)) < 500
