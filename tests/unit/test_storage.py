"""Storage beneath programs: mounts, folders of launches, files that are copied up."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_files import case_of, measured, mounted
from tests.unit.made_programs import GOOD, PLAN, printing, row_with, run_row

from collbench import workloads
from collbench.errors import EngineError
from collbench.launch import folders
from collbench.launch.cells import LaunchCell, inner_plan, storages_of
from collbench.launch.collect import storage_text
from collbench.launch.engines.docker.images import storage_root
from collbench.launch.engines.docker.spec import ContainerMount
from collbench.launch.expansion import expand
from collbench.launch.folders import INSIDE, described, place_of, refuse_other_device, signed, storage_of
from collbench.machine.cgroup import Mount, cpu_weight, disks, under
from collbench.machine.facts import Core, Topology
from collbench.run import facts_of_ranks
from collbench.run.facts_of_ranks import OwnTime
from collbench.schema.manifest import Disk
from collbench.schema.plan import Plan
from collbench.workloads.host import copyup
from collbench.workloads.program import Measure, Program, SideCommand

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
    with pytest.raises(EngineError, match=r"storage volume: .* on \w+.* /proc on proc"):
        refuse_other_device(cells, "/proc", str(tmp_path))
    with pytest.raises(EngineError, match=r"storage: /no/such: .* folder"):
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

    def contended(stretch: object, world: object, own_time: OwnTime) -> tuple[bool, tuple[str, ...]]:
        given.append(own_time)
        return False, ()

    monkeypatch.setattr(facts_of_ranks, "contended", contended)
    busy = SideCommand(("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
    row = replace(row_with(printing(GOOD)), after=lambda case: (busy,))
    (record, _), *_ = run_row(monkeypatch, row)
    assert record.cpu is not None
    assert given[0].user > record.cpu.user + 0.05


# What lies under a folder, by tables of mounts and block devices in a folder of the test ------------------------------

TABLE = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /dev/shm rw - tmpfs tmpfs rw
40 22 8:17 / /data rw - xfs /dev/sdb1 rw
41 40 0:60 / /data/layers rw - overlay overlay rw
42 22 8:17 / /with\\040blank rw - xfs /dev/sdb1 rw
odd line
"""


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    written(tmp_path, {"proc/self/mountinfo": TABLE, "sys/devices/vda/vda1/dev": "", "sys/devices/sdb/sdb1/dev": ""})
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    for numbers, device in (("254:1", "vda/vda1"), ("8:17", "sdb/sdb1")):
        (tmp_path / "sys/dev/block" / numbers).symlink_to(tmp_path / "sys/devices" / device)
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("/var", "ext4 (vda1)"), ("/dev/shm/x", "tmpfs"),  # noqa: S108 - a folder in it
        ("/data", "xfs (sdb1)"), ("/database", "ext4 (vda1)"),
        ("/data/layers/a/b", "overlay"), ("/with blank/x", "xfs (sdb1)"),
    ],
)  # fmt: skip
def test_the_innermost_mount_above_a_folder_counts(root: Path, folder: str, text: str) -> None:
    assert under(Path(folder), root).text == text


def test_a_mount_over_another_hides_it(root: Path) -> None:
    again = TABLE + "50 22 0:70 / /data rw - tmpfs tmpfs rw\n"
    written(root, {"proc/self/mountinfo": again})
    assert under(Path("/data/x"), root).text == "tmpfs"


def test_without_a_table_nothing_is_known(tmp_path: Path) -> None:
    assert under(Path("/"), tmp_path) == Mount("unknown")


def test_disks_are_block_devices_with_hardware(tmp_path: Path) -> None:
    assert disks(tmp_path) == ()
    written(tmp_path, {
        "sys/block/sda/device/model": "SPINNER 9000  \n", "sys/block/sda/queue/rotational": "1\n",
        "sys/block/sda/queue/scheduler": "none [mq-deadline] bfq\n", "sys/block/loop0/queue/rotational": "0\n",
        "sys/block/vdb/device/other": "",
    })  # fmt: skip
    assert disks(tmp_path) == (
        Disk(name="sda", model="SPINNER 9000", rotational=True, scheduler="mq-deadline"), Disk(name="vdb"),
    )  # fmt: skip


def test_the_weight_is_that_of_the_innermost_group(tmp_path: Path) -> None:
    assert cpu_weight(tmp_path) is None
    second = {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.weight": "39\n"}
    assert cpu_weight(written(tmp_path / "2", second)) == 39
    first = {"proc/self/cgroup": "4:cpu,cpuacct:/a\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.shares": "512\n",
             "sys/fs/cgroup/cpu,cpuacct/cpu.shares": "1024\n"}  # fmt: skip
    assert cpu_weight(written(tmp_path / "1", first)) == 512


# copyup ---------------------------------------------------------------------------------------------------------------

SIZE = 3 * copyup.BLOCK // 2


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    copyup.make(tmp_path / "layer", (SIZE,))
    return tmp_path / "layer"


def test_the_files_of_a_layer_are_known_and_for_everybody(layer: Path) -> None:
    data = (layer / str(SIZE)).read_bytes()
    assert data == b"".join(copyup.content(SIZE))
    assert (len(data), data[:4].hex(), len(set(data))) == (SIZE, "da58737d", 256)
    assert (layer.stat().st_mode & 0o777, (layer / str(SIZE)).stat().st_mode & 0o777) == (0o777, 0o666)
    assert copyup.wrong(layer / str(SIZE)) == 0


@pytest.mark.parametrize("place", [0, copyup.BLOCK - 1, copyup.BLOCK, SIZE - 1])
def test_every_byte_is_compared(layer: Path, place: int) -> None:
    path = layer / str(SIZE)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert copyup.wrong(path) == 1
    with pytest.raises(ValueError):
        copyup.opened(path)


@pytest.mark.parametrize(("change", "wrong"), [(1, 1), (-1, 1), (-SIZE, 2)])
def test_a_file_of_another_size_is_wrong(layer: Path, change: int, wrong: int) -> None:
    path = layer / str(SIZE)
    path.write_bytes((path.read_bytes() + b"x")[: SIZE + change])
    assert copyup.wrong(path) == wrong


def test_a_file_that_goes_on_after_its_last_block_is_wrong(tmp_path: Path) -> None:
    copyup.make(tmp_path, (copyup.BLOCK,))
    with (tmp_path / str(copyup.BLOCK)).open("ab") as file:
        file.write(b"x")
    assert copyup.wrong(tmp_path / str(copyup.BLOCK)) == 1


def test_a_copy_that_differs_is_wrong(layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opens = layer / str(SIZE), os.open

    def spoils(name: Any, flags: int, *more: int) -> int:
        if flags == os.O_WRONLY:
            os.truncate(path, copyup.BLOCK)
        return opens(name, flags, *more)

    monkeypatch.setattr(os, "open", spoils)
    found = copyup.opened(path)
    assert (found["bytes"], found["wrong"]) == (copyup.BLOCK, 1)
    assert workloads.get("copyup").verify(case_of("copyup", size=SIZE), json.dumps(found)) == 2


def test_a_file_is_opened_once_and_removed(
    layer: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = layer / str(SIZE)
    monkeypatch.setattr("sys.argv", ["copyup", "open", str(path)])
    copyup.main()
    row, output = workloads.get("copyup"), capsys.readouterr().out
    assert row.verify(case_of("copyup", size=SIZE), output) == 0
    assert row.parse(output) == {"open": [json.loads(output)["ns"] * 1e-9]}
    with pytest.raises(SystemExit, match="1"):
        copyup.main()
    assert capsys.readouterr() == ("", f"open {path}: No such file or directory\n")


def test_the_image_gets_a_file_of_each_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def nothing(size: int) -> tuple[bytes, ...]:
        made.append(size)
        return ()

    monkeypatch.setattr("sys.argv", ["copyup", "make", str(tmp_path / "layer")])
    monkeypatch.setattr(copyup, "content", nothing)
    copyup.main()
    assert sorted(path.name for path in (tmp_path / "layer").iterdir()) == sorted(map(str, made))
    assert tuple(made) == tuple(case_of("copyup", size=size)["size"] for size in workloads.get("copyup").sizes)


def test_where_there_is_no_layer_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copyup, "LAYER", tmp_path / "layer")
    ((status, reason),) = [(record.status, record.reason) for record in measured(OVERLAYS, tmp_path)]
    assert (status, f"{tmp_path}/layer/{SIZE}" in str(reason), " tools" in str(reason)) == ("skipped", True, True)


OVERLAYS = {"name": "copyup", "size": SIZE}


@pytest.mark.parametrize(
    ("layer_kind", "storage_kind", "others"),
    [("ext4", "overlay", {"ext4"}), ("overlay", "tmpfs", {"tmpfs"}), ("btrfs", "ext4", {"btrfs", "ext4"}),
     ("overlay", "overlay", set())],
)  # fmt: skip
def test_other_file_systems_are_skipped(
    layer_kind: str, storage_kind: str, others: set[str], layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copyup, "LAYER", layer)
    monkeypatch.setattr(copyup, "kind_of", lambda path: layer_kind if path.is_relative_to(layer) else storage_kind)
    said = workloads.get("copyup").lacks(case_of("copyup", size=SIZE), layer.parent)
    assert {"ext4", "tmpfs", "btrfs"}.intersection(re.findall(r"\w+", said or "")) == others


def test_on_an_overlay_the_file_is_copied_once(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of samples the plan asks for, and without a warm-up."""
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir()
    lower = layer.rename(tmp_path / "lower")
    options = f"lowerdir={lower},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    with mounted(tmp_path / "merged", "overlay", options) as merged:
        monkeypatch.setattr(copyup, "LAYER", merged)
        (record,) = measured(OVERLAYS, merged, warmup=2, iters=5)
        assert record.status == "ok", record.reason
        assert record.samples is not None and (record.samples.n, record.samples.warmup) == (1, 0)
        assert record.work is not None and (record.work.amount, record.work.unit) == (SIZE, "bytes")
        (record,) = measured(OVERLAYS, merged)
        assert record.status == "skipped"
        assert list(merged.iterdir()) == []
    assert (lower / str(SIZE)).exists()


def test_what_happens_once_is_executed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Program(
        name="stream", title="", summary="", measures=(),
        argv=lambda case, times: (sys.executable, "-c", f"open({str(tmp_path / 'runs')!r}, 'a').write('{times} ')"),
        parse=lambda output: {"total": [2e-6]}, verify=lambda case, output: 0, sizes=("8",),
        axes=workloads.get("stream").axes,
    )  # fmt: skip
    for once, runs in ((True, "1 "), (False, f"{PLAN.warmup + (PLAN.iters or 0)} ")):
        measure = Measure("total", lambda case: 1, "events", once=once)
        ((record, samples), *_) = run_row(monkeypatch, replace(row, measures=(measure,)))
        assert (tmp_path / "runs").read_text(encoding="utf-8") == runs
        (tmp_path / "runs").unlink()
        assert record.status == ("ok" if once else "failed")
        assert once is (samples is not None and samples.tolist() == [[2000]])
