"""Limits of control groups, in both hierarchies, on made-up trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from collbench.machine.cgroup import cpu_quota, memory_left, memory_limit, throttled_seconds


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_no_groups_no_limits(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limit(tmp_path) is None
    assert memory_left(tmp_path) is None


def test_the_tightest_group_above_us_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job",
            "sys/fs/cgroup/user.slice/memory.max": "1000",
            "sys/fs/cgroup/user.slice/memory.current": "900",
            "sys/fs/cgroup/user.slice/job/memory.max": "5000",
            "sys/fs/cgroup/user.slice/job/memory.current": "10",
            "sys/fs/cgroup/user.slice/cpu.max": "max 100000",
            "sys/fs/cgroup/user.slice/job/cpu.max": "250000 100000",
        },
    )
    assert memory_limit(root) == 1000
    assert memory_left(root) == 100
    assert cpu_quota(root) == 2.5


def test_how_long_a_quota_stopped_us(tmp_path: Path) -> None:
    assert throttled_seconds(tmp_path) == {}
    second = {"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/cpu.stat": "usage_usec 5\nthrottled_usec 1500000"}
    assert list(throttled_seconds(tree(tmp_path / "2", second)).values()) == pytest.approx([1.5])
    stat = "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat"
    first = {"proc/self/cgroup": "4:cpu,cpuacct:/job", stat: "throttled_time 25000000"}
    assert list(throttled_seconds(tree(tmp_path / "1", first)).values()) == pytest.approx([0.025])


def test_more_used_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "10", "sys/fs/cgroup/memory.current": "20"}
    assert memory_left(tree(tmp_path, files)) == 0


@pytest.mark.parametrize(("limit", "expected"), [("4096", 4096), ("9223372036854771712", None)])
def test_the_first_hierarchy(tmp_path: Path, limit: str, expected: int | None) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n0::/",
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": limit,
            "sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": "96",
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
        },
    )
    assert memory_limit(root) == expected
    assert memory_left(root) == (None if expected is None else expected - 96)
    assert cpu_quota(root) is None
