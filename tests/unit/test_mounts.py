"""What lies under a folder, by tables of mounts and block devices in a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from collbench.machine.cgroup import Mount, cpu_weight, disks, under
from collbench.schema.manifest import Disk

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
