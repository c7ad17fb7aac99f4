"""What a launch says of others on its machine, and who the user inside is."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from collbench.launch.cells import LaunchCell
from collbench.launch.folders import UNPRIVILEGED, disturbances, folders, sign, user_inside
from collbench.launch.placement import Placement, place
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import Plan

PLAN = Plan(collectives=("allreduce",), images=("mpich",))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def on_cores(*numbers: int) -> Placement:
    return place(Topology(tuple(map(Core, numbers))), LaunchCell("mpich", "single", "strict", len(numbers)), PLAN)


def test_a_launch_on_the_same_cores_is_said_as_long_as_it_lives(tmp_path: Path) -> None:
    with folders(PLAN.of_world(), user_inside(), "0-2"):
        (line,) = disturbances([on_cores(1, 2), on_cores(3)])
        assert line.startswith(f"another launch runs on cores 1-2 ({tmp_path}/collbench-")
        assert "core 0 (" in disturbances([on_cores(0)])[0]
        assert disturbances([on_cores(3, 4)]) == []
    assert disturbances([on_cores(1, 2)]) == []


@pytest.mark.parametrize("said", [None, "", "0-", "0-99999999999", "none", "0\n1", "\udcff"])
def test_what_somebody_else_left_there_is_not_believed(tmp_path: Path, said: str | None) -> None:
    folder = tmp_path / "collbench-odd"
    folder.mkdir()
    if said is None:
        os.mkfifo(folder / "cores")
    else:
        (folder / "cores").write_text(said, encoding="utf-8", errors="surrogateescape")
    with sign(folder):
        assert disturbances([on_cores(0, 1)]) == []


def test_a_driver_that_is_root_starts_ranks_as_nobody_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders that ranks write to are open to this number, also on the host."""
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert user_inside() == (UNPRIVILEGED, UNPRIVILEGED)
    with pytest.raises(KeyError):
        pwd.getpwuid(user_inside()[0])
    known = {UNPRIVILEGED, UNPRIVILEGED + 1}

    def look_up(number: int) -> str:
        if number not in known:
            raise KeyError(number)
        return "somebody"

    monkeypatch.setattr(pwd, "getpwuid", look_up)
    assert user_inside() == (UNPRIVILEGED + 2, UNPRIVILEGED + 2)


def test_another_driver_starts_them_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(os, "getgid", lambda: 42)
    assert user_inside() == (4711, 42)
