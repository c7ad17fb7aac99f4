"""What is left of a dead driver, and what may be alive."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from collbench.launch.identity import driver_identity
from collbench.launch.sweep import is_dead, sweep_folders


def test_who_is_dead() -> None:
    mine = driver_identity()
    boot, space, number, started = mine.split("/")
    assert not is_dead(mine, running=True)
    assert is_dead(f"{boot}/{space}/{number}/{int(started) + 1}", running=True)  # a later process of that number
    assert is_dead(f"{boot}/{space}/4194305/1", running=True)
    for elsewhere in (f"another-boot/{space}/{number}/{started}", f"{boot}/1/4194305/1"):
        assert is_dead(elsewhere, running=False)
        assert not is_dead(elsewhere, running=True)  # from another machine, or from a container
    assert not is_dead("strange", running=False)


def test_folders_of_dead_drivers_are_removed_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    boot, space, *_ = driver_identity().split("/")
    for name, driver in (("dead", f"{boot}/{space}/4194305/1"), ("alive", driver_identity()), ("unsigned", None)):
        folder = tmp_path / f"collbench-{name}"
        folder.mkdir()
        if driver is not None:
            (folder / "driver").write_text(driver)
    (tmp_path / "collbench-link").symlink_to(tmp_path / "collbench-dead")
    assert sweep_folders() == [str(tmp_path / "collbench-dead")]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "collbench-alive",
        "collbench-link",
        "collbench-unsigned",
    ]
