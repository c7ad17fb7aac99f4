"""Two sides of a gate differ in what was asked and in nothing else, or nothing is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_gates import LARGE, SMALL, fine, made_gate, told
from tests.unit.made_runs import library, spread
from tests.unit.test_gate import judged, states

from collbench.analysis.gate import Cause
from collbench.errors import RunReadError
from collbench.report.gate import doubt_text
from collbench.schema.plan import Side
from collbench.schema.record import UNREAD, Loaded, said

PATH, OTHER_PATH = "/build/libmpi.so.40", "/opt/Open MPI/lib/libmpi.so"
OURS, THEIRS = "1" * 64, "a" * 64
WITH_FILE = (Side(), Side(libraries=(PATH,)))
GOOD = fine()

#: The other side has the file in front, and its environment says so.
HAS_FILE: dict[str, Any] = {"files": {PATH: OURS}}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"python": "3.12.1"}, "python"),
        ({"environment": {"OMP_NUM_THREADS": "4"}}, "env:OMP_NUM_THREADS"),
        ({"libraries": (library(sha256="b" * 64),)}, "library-file"),
    ],
)
def test_any_other_difference_is_refused_by_name(tmp_path: Path, fields: dict[str, Any], name: str) -> None:
    found = judged(made_gate(tmp_path, GOOD, fine(2), software=({"environment": {}}, {"environment": {}} | fields)))
    assert (states(found), found.code) == (["no answer (not verified)"] * 2, 4)
    assert any(name in cause.values for cause in found.refused)


def test_a_run_without_the_sides_of_a_gate_is_refused(tmp_path: Path) -> None:
    folder = made_gate(tmp_path, GOOD, GOOD)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"plan": {}}))
    with pytest.raises(RunReadError, match="base and other"):
        judged(folder)


def test_a_variable_that_was_asked_for_may_differ_and_no_other(tmp_path: Path) -> None:
    sides = Side(), Side(variables={"OMP_NUM_THREADS": "4"})
    plain: dict[str, Any] = {"environment": {}}
    asked: dict[str, Any] = {"environment": {"OMP_NUM_THREADS": "4"}}
    assert judged(made_gate(tmp_path / "asked", GOOD, GOOD, sides=sides, software=(plain, asked))).code == 0
    more = {"environment": {"OMP_NUM_THREADS": "4", "NCCL_ALGO": "Ring"}}
    found = judged(made_gate(tmp_path / "more", GOOD, GOOD, sides=sides, software=(plain, more)))
    assert found.code == 4
    assert [cause.values[0] for cause in found.refused] == ["env:NCCL_ALGO"]


def test_an_image_that_was_asked_for_may_hold_anything(tmp_path: Path) -> None:
    sides = Side(), Side(images={"openmpi": "new"})
    fields = {"python": "3.12.1", "id": "sha256:9", "libraries": (library("MPICH", "4.3", "b" * 64),)}
    assert judged(made_gate(tmp_path, GOOD, GOOD, sides=sides, software=({}, fields))).code == 0


def loaded_on(path: str, sha256: str) -> dict[Any, Any]:
    """Two cells whose ranks loaded this file."""
    notes = (said(Loaded("libmpi.so", path, sha256)),)
    return {SMALL: told(SMALL, spread(1e-6), notes=notes), LARGE: told(LARGE, spread(1e-4), notes=notes)}


def test_a_library_that_the_ranks_loaded_is_compared(tmp_path: Path) -> None:
    folder = made_gate(tmp_path, loaded_on(OTHER_PATH, THEIRS), loaded_on(PATH, OURS), sides=WITH_FILE,
                       software=({}, HAS_FILE | {"libraries": (library(sha256=OURS),)}))  # fmt: skip
    found = judged(folder)
    assert (found.code, found.alike) == (0, ())


def test_a_library_that_the_ranks_did_not_load_is_no_answer(tmp_path: Path) -> None:
    theirs = loaded_on(OTHER_PATH, THEIRS)
    found = judged(made_gate(tmp_path, theirs, theirs, sides=WITH_FILE, software=({}, HAS_FILE)))
    assert (states(found), found.code) == (["no answer (not verified)"] * 2, 4)
    assert found.answers[0].doubt is not None
    cause = Cause("other loaded", ("other", OTHER_PATH, THEIRS, PATH, OURS, False))
    assert found.answers[0].doubt.values == (cause,)
    assert f"preload={PATH}" in doubt_text(found.answers[0].doubt)


@pytest.mark.parametrize(
    ("notes", "kind"),
    [
        ((), "not told"),
        ((said(Loaded("libmpi.so")),), "none loaded"),
        (
            (said(Loaded("libmpi.so", PATH, OURS), "0"), said(Loaded("libmpi.so", OTHER_PATH, THEIRS), "1")),
            "other loaded",
        ),
    ],
)
def test_every_rank_has_to_tell_that_it_loaded_the_file(tmp_path: Path, notes: tuple[str, ...], kind: str) -> None:
    other = loaded_on(PATH, OURS) | {SMALL: told(SMALL, spread(1e-6), notes=notes)}
    found = judged(made_gate(tmp_path, loaded_on(OTHER_PATH, THEIRS), other, sides=WITH_FILE, software=({}, HAS_FILE)))
    assert states(found) == ["no answer (not verified)", "no loss"]
    assert found.answers[0].doubt is not None
    assert found.answers[0].doubt.values[0].kind == kind


def test_another_library_may_not_differ_beside_the_one_that_was_asked_for(tmp_path: Path) -> None:
    nccl = library("NCCL", "2.21", "c" * 64)
    fields = {"libraries": (library(), msgspec.structs.replace(nccl, path="/opt/libnccl.so.2"))}
    new = msgspec.structs.replace(nccl, path="/new/libnccl.so.2", sha256="d" * 64)
    changed = HAS_FILE | {"libraries": (library(sha256=OURS), new)}
    folder = made_gate(tmp_path, loaded_on(OTHER_PATH, THEIRS), loaded_on(PATH, OURS), sides=WITH_FILE,
                       software=(fields, changed))  # fmt: skip
    found = judged(folder)
    assert found.code == 4
    assert any("/new/libnccl.so.2" in cause.values for cause in found.refused)


def test_sides_that_are_the_same_by_hash_are_said_to_be(tmp_path: Path) -> None:
    ours = loaded_on(PATH, OURS)
    folder = made_gate(tmp_path / "file", ours, ours, sides=(WITH_FILE[1],) * 2, software=(HAS_FILE,) * 2)
    assert judged(folder).alike == (Cause("same file", ("libmpi.so", OURS[:12])),)
    images = Side(images={"openmpi": "a"}), Side(images={"openmpi": "b"})
    (cause,) = judged(made_gate(tmp_path / "image", GOOD, GOOD, sides=images)).alike
    assert (cause.kind, cause.values[0].startswith("sha256:openmpi")) == ("same image", True)
    assert judged(made_gate(tmp_path / "plan", GOOD, GOOD)).alike == (Cause("plan"),)


def test_without_a_hash_nothing_is_said_to_be_the_same(tmp_path: Path) -> None:
    """Neither of no file, nor of one that could not be read."""
    for name, one, kind in (
        ("none", Loaded("libmpi.so"), "no file"),
        ("unread", Loaded("libmpi.so", PATH, UNREAD), "unread file"),
    ):
        cells = {SMALL: told(SMALL, spread(1e-6), notes=(said(one),))}
        folder = made_gate(tmp_path / name, cells, cells, sides=WITH_FILE, software=({}, HAS_FILE))
        found = judged(folder)
        assert [cause.kind for cause in found.alike] == [kind]
        assert found.answers[0].doubt is not None
        assert UNREAD[:12] not in doubt_text(found.answers[0].doubt)


def test_what_was_preloaded_already_is_not_advised(tmp_path: Path) -> None:
    side = Side(preload=(PATH,))
    theirs = loaded_on(OTHER_PATH, THEIRS)
    (first, _) = judged(made_gate(tmp_path, theirs, theirs, sides=(Side(), side), software=({}, HAS_FILE))).answers
    assert first.doubt is not None
    assert first.doubt.values[0].values[-1] is True
    assert "preload=" not in doubt_text(first.doubt)
