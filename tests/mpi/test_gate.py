"""A gate for real: the same twice, parameters of Open MPI that slow large broadcasts down, and a library of our own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from collbench.bindings.mpi import library_path, load_mpi
from tests.mpi.jobs import Ended, finish, mpi_vendor

pytestmark = [pytest.mark.mpi, pytest.mark.one_mpi]

#: A broadcast of 256 KiB in pieces of 1 KiB takes ten times as long; one of 64 B is one piece.
PIECES = {
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_bcast_algorithm": "3",
    "OMPI_MCA_coll_tuned_bcast_algorithm_segmentsize": "1024",
}
SLOWER = [word for name, value in PIECES.items() for word in ("--other", f"env={name}={value}")]

#: Nothing here depends on an idle machine, or on one with a core for each rank.
ACCEPTED = [word for name in ("contended", "oversubscribed", "late", "drift") for word in ("--accept", name)]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Two sizes, on either side of what the parameters change."""
    if mpi_vendor() != "openmpi":
        pytest.skip("the parameters are Open MPI's")
    path = tmp_path / "plan.toml"
    path.write_text('collectives = ["bcast"]\nsizes = ["64", "256K"]\niters = 30\n')
    return path


def gate(plan: Path, out: Path, *arguments: str) -> tuple[Ended, dict[str, Any]]:
    """How it ended, and the document that it printed."""
    asked = [str(plan), "--out", str(out), "-n", "2", "--launches", "6", "--margin", "50%", "--style", "json"]
    ended = finish([sys.executable, "-m", "collbench", "gate", *asked, *ACCEPTED, *arguments])
    return ended, json.loads(ended.out) if ended.out else {}


def test_parameters_that_slow_large_messages_down_are_a_loss_there_alone(plan: Path, tmp_path: Path) -> None:
    ended, told = gate(plan, tmp_path / "gate", *SLOWER)
    assert ended.code == 1, ended.err
    answers = {cell["base"]["what"]["size"]: cell["answer"] for cell in told["cells"]}
    assert answers[256 << 10] == "loss"
    assert answers[64] != "loss"
    assert told["planned"] == 2


def test_the_same_twice_is_no_loss(plan: Path, tmp_path: Path) -> None:
    ended, told = gate(plan, tmp_path / "gate")
    assert ended.code in (0, 4), ended.err
    assert told["lost"] == 0
    assert "both sides are the plan as it stands" in " ".join(told["notes"])


def copied_library(folder: Path) -> Path:
    """The MPI library with a byte more, beside what it needs: another build, as far as a hash can tell."""
    load_mpi()
    original = Path(library_path() or "")
    folder.mkdir()
    for beside in original.parent.iterdir():
        if beside.name != original.name and (".so" in beside.name or beside.name == "openmpi"):
            (folder / beside.name).symlink_to(beside)
    copy = folder / original.name
    copy.write_bytes(original.read_bytes() + b"\0")
    return copy


def test_a_library_put_in_front_is_the_one_that_the_ranks_loaded(plan: Path, tmp_path: Path) -> None:
    copy = copied_library(tmp_path / "lib")
    ended, told = gate(plan, tmp_path / "gate", "--other", f"preload={copy}")
    assert ended.code in (0, 1, 4), ended.err
    assert "not verified" not in {cell["reason"] for cell in told["cells"]}
    assert any(line.startswith("library-file: ") for line in told["differences"])
    notes = {note for line in (tmp_path / "gate" / "records.jsonl").read_text().splitlines()
             if json.loads(line)["case"]["where"]["side"] == "other"
             for note in json.loads(line)["notes"] if note.startswith("loaded")}  # fmt: skip
    assert len(notes) == 1
    assert f"loaded libmpi.so: {os.path.realpath(copy)} " in notes.pop()


def test_a_library_that_something_else_goes_before_is_no_answer(plan: Path, tmp_path: Path) -> None:
    """mpi4py loads libmpi by the path where it found it, which LD_LIBRARY_PATH does not change."""
    copy = copied_library(tmp_path / "lib")
    ended, told = gate(plan, tmp_path / "gate", "--other", f"lib={copy}")
    assert ended.code == 4, ended.err
    assert {cell["reason"] for cell in told["cells"]} == {"not verified"}
    assert all(f"preload={copy}" in cell["why"] for cell in told["cells"])
    assert "stopped: other" in ended.err
