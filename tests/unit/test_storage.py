"""Storage of launches: folders that are made and removed, cells, mounts of containers, and what records say of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.made_programs import GOOD, printing, row_with, run_row

from collbench.errors import EngineError
from collbench.launch import folders
from collbench.launch.cells import LaunchCell, inner_plan, storages_of
from collbench.launch.collect import storage_text
from collbench.launch.engines.docker.look import storage_root
from collbench.launch.engines.docker.spec import ContainerMount
from collbench.launch.expansion import expand
from collbench.launch.folders import INSIDE, described, place_of, refuse_other_device, signed, storage_of
from collbench.machine.topology import Core, Topology
from collbench.run import facts_of_ranks
from collbench.run.facts_of_ranks import OwnTime
from collbench.schema.plan import Plan
from collbench.workloads.program import SideCommand

ME = (os.getuid(), os.getgid())


def cell(engine: str, kind: str | None) -> LaunchCell:
    return LaunchCell("tools", "host" if engine == "host" else "multi", None, 1, engine=engine, storage=kind)


@pytest.mark.parametrize("engine", ["host", "docker"])
@pytest.mark.parametrize("kind", ["overlay", "volume", "bind", "tmpfs"])
def test_a_folder_is_made_where_one_is_needed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, kind: str
) -> None:
    memory, disk = tmp_path / "shm", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(folders, "SHARED_MEMORY", str(memory))
    with storage_of(cell(engine, kind), str(disk), ME) as found:
        assert found is not None and found.kind == kind
        made = [path for parent in (memory, disk) for path in parent.iterdir()]
        assert (
            (place_of(cell(engine, kind), str(disk)) is not None) == bool(made) == (engine == "host" or kind == "bind")
        )
        if made:
            assert made[0].parent == (memory if kind == "tmpfs" else disk)
            assert found.source == str(made[0] / "files") and Path(found.source).is_dir()
            (made[0] / "files" / "left").write_text("by a program")
        assert found.folder == (found.source if engine == "host" else INSIDE)
    assert list(memory.iterdir()) == list(disk.iterdir()) == []


def test_a_killed_drivers_folder_is_found_by_a_sweep_in_any_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, usual, elsewhere = (tmp_path / name for name in ("tmp", "usual", "elsewhere \u00e9"))
    for folder in (temporary, usual, elsewhere):
        folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr("collbench.launch.folders._MORE_PLACES", (str(usual),))
    for place, seen in ((usual, {usual}), (elsewhere, {elsewhere, temporary})):
        with storage_of(cell("host", "bind"), str(place), ME):
            assert {folder.parent for folder, _, locked in signed() if locked} == seen
        assert list(place.iterdir()) == list(temporary.iterdir()) == []
        assert list(signed()) == []


def test_without_files_there_is_no_storage(tmp_path: Path) -> None:
    with storage_of(cell("host", None), str(tmp_path), ME) as found:
        assert found is None
    assert described(cell("docker", None)) is None


def test_each_storage_is_a_cell_of_the_benchmarks_that_work_in_files() -> None:
    plan = Plan(
        images=("tools",), policies=("host", "multi"), storage=("overlay", "tmpfs"), seccomp=("default", "unconfined"),
        benchmarks=("dd", "sysbench_cpu"),
    )  # fmt: skip
    assert storages_of(plan) == (None, "overlay", "tmpfs")
    found = {
        (cell.engine, cell.storage, cell.seccomp): [case.identities[0].workload for case in cases]
        for cell, cases in expand(plan, lambda engine: Topology((Core(0),))).cases.items()
    }
    filters = (("host", "default"), ("docker", "default"), ("docker", "unconfined"))
    assert found == {
        (engine, kind, seccomp): ["sysbench_cpu"] if kind is None else ["dd"]
        for engine, seccomp in filters for kind in (None, "overlay", "tmpfs")
    }  # fmt: skip
    assert inner_plan(plan, cell("host", "tmpfs"), "/x").folder == "/x"


def test_two_devices_are_refused_and_both_are_named(tmp_path: Path) -> None:
    cells = [cell("docker", "volume"), cell("docker", "tmpfs")]
    refuse_other_device(cells, str(tmp_path), str(tmp_path))
    refuse_other_device([cell("docker", "bind")], "/proc", str(tmp_path))
    with pytest.raises(EngineError, match=r"storage volume: the engine keeps it in .* on \w+.* in /proc on proc: two"):
        refuse_other_device(cells, "/proc", str(tmp_path))
    with pytest.raises(EngineError, match=r"storage: /no/such: No such file or directory; set folder"):
        refuse_other_device(cells, "/no/such", str(tmp_path))


def test_the_engine_says_where_its_layers_are() -> None:
    assert (
        storage_root({"DockerRootDir": "/big/docker", "DriverStatus": [["Backing Filesystem", "extfs"]]})
        == "/big/docker"
    )
    snapshots = [["driver-type", "io.containerd.snapshotter.v1"]]
    assert storage_root({"DockerRootDir": "/big/docker", "DriverStatus": snapshots}) == "/var/lib/containerd"


def test_a_volume_and_memory_have_no_source() -> None:
    volume = ContainerMount("", "/tmp", True, "volume").setting  # noqa: S108
    memory, folder = ContainerMount("", "/tmp", True, "tmpfs").setting, ContainerMount("/a", "/b").setting  # noqa: S108
    assert (volume["Type"], volume.get("Source"), volume["ReadOnly"]) == ("volume", None, False)
    assert (memory["Type"], memory.get("Source")) == ("tmpfs", None)
    assert (folder["Type"], folder["Source"], folder["ReadOnly"]) == ("bind", "/a", True)


@pytest.mark.parametrize(
    ("seen", "told", "text"),
    [
        ("overlay", "ext4 (vda)", "overlay on ext4 (vda)"),
        ("ext4 (vda)", "ext4 (vda)", "ext4 (vda)"),
        ("xfs (sdb)", "ext4 (vda)", "xfs (sdb); the engine keeps it on ext4 (vda)"),
        ("tmpfs", None, "tmpfs"),
        (None, "ext4 (vda)", None),
    ],
)
def test_a_record_has_both_witnesses(seen: str | None, told: str | None, text: str | None) -> None:
    assert storage_text(seen, told) == text


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OSError, match="Not a directory"), storage_of(cell("host", "bind"), str(blocked), ME):
        raise AssertionError("was made")
    assert list(tmp_path.iterdir()) == [blocked]


def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine takes no other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disk").mkdir()
    assert place_of(cell("docker", "bind"), "disk") == str(tmp_path / "disk")
    with storage_of(cell("docker", "bind"), "disk", ME) as found:
        assert found is not None and found.source is not None and found.source.startswith(f"{tmp_path}/disk/")


def test_the_own_time_of_a_program_includes_the_steps_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that verifies computes too, and is nobody else's."""
    given: list[OwnTime] = []

    def contended(stretch: object, world: object, own: OwnTime) -> tuple[bool, tuple[str, ...]]:
        given.append(own)
        return False, ()

    monkeypatch.setattr(facts_of_ranks, "contended", contended)
    busy = SideCommand(("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
    row = replace(row_with(printing(GOOD)), after=lambda case: (busy,))
    (record, _), *_ = run_row(monkeypatch, row)
    assert record.cpu is not None
    assert given[0].user > record.cpu.user + 0.05
