"""Benchmarks on the host and in containers of a real engine: what lies under their files, filters, and what is left."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from collbench.launch.folders import SHARED_MEMORY
from collbench.machine.cgroup import under
from collbench.schema.record import Record
from collbench.schema.store import read_run
from tests.containers.conftest import Launch, Started, ended
from tests.containers.test_launch import need

FOLDER = "/var/tmp"  # noqa: S108 - the default of plans

PLAN = """\
images = ["tools"]
policies = ["host", "multi"]
launches = 1
warmup = 0
iters = 1
timeout = "60s"
{more}
"""


def folders() -> set[Path]:
    """What launches make for their files."""
    return {path for parent in (FOLDER, SHARED_MEMORY) for path in Path(parent).glob("collbench-*")}


def by_place(run: Path) -> dict[tuple[str, str | None], Record]:
    """One record of each place and storage."""
    return {(record.case.where.engine, record.case.where.storage): record for record in read_run(run).records}


@pytest.mark.docker
def test_every_storage_is_what_it_says_and_nothing_is_left(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "tools")
    before, volumes = folders(), len(clean.engine.api.volumes()["Volumes"] or ())
    more = 'storage = ["overlay", "volume", "bind", "tmpfs"]\nbenchmarks = [{ name = "dd", count = 2 }]'
    code, _, err = ended(launch(PLAN.format(more=more)))
    assert code == 0, err
    found = by_place(tmp_path / "run")
    assert {record.status for record in found.values()} == {"ok"}
    disk = under(Path(FOLDER)).text
    layers = under(Path(str(clean.engine.describe()["DockerRootDir"]))).text
    expected = {"overlay": f"overlay on {layers}", "volume": layers, "bind": disk, "tmpfs": "tmpfs"}
    assert {storage: found["docker", storage].transport for storage in expected} == expected
    on_host = dict.fromkeys(("overlay", "volume", "bind"), disk) | {"tmpfs": under(Path(SHARED_MEMORY)).text}
    assert {storage: found["host", storage].transport for storage in on_host} == on_host
    assert folders() == before
    assert len(clean.engine.api.volumes()["Volumes"] or ()) == volumes


@pytest.mark.docker
def test_the_filter_of_system_calls_is_the_engines_or_none(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "tools")
    more = 'seccomp = ["default", "unconfined"]\nbenchmarks = [{ name = "linpack", n = 50 }]'
    code, _, err = ended(launch(PLAN.format(more=more)))
    assert code == 0, err
    inside = [record for record in read_run(tmp_path / "run").records if not record.case.where.on_host]
    assert {record.case.where.seccomp: record.confinement[0].seccomp for record in inside} == {
        "default": True, "unconfined": False
    }  # fmt: skip
    assert all(record.confinement[0].speculation for record in inside)


@pytest.mark.docker
def test_another_device_is_refused_before_anything_starts(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "tools")
    more = f'folder = "{SHARED_MEMORY}"\nbenchmarks = [{{ name = "dd", count = 2 }}]'
    code, _, err = ended(launch(PLAN.format(more=more)))
    layers = str(clean.engine.describe()["DockerRootDir"])
    assert code == 2
    assert f"the engine keeps it in {layers} on {under(Path(layers)).text}" in err
    assert f"would be in {SHARED_MEMORY} on tmpfs: two devices would be compared" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.docker
def test_what_an_image_lacks_is_refused_or_skipped(clean: Started, launch: Launch, tmp_path: Path) -> None:
    """openmpi has none of the programs."""
    plan = PLAN.replace('"host", ', "").replace("tools", "openmpi")
    code, _, err = ended(launch(plan.format(more='benchmarks = ["ioping"]')))
    assert (code, "image openmpi: benchmark ioping: ioping was not found" in err) == (2, True), err
    more = 'unusable = "skip"\nbenchmarks = ["ioping", { name = "dd", count = 2 }]'
    code, _, err = ended(launch(plan.format(more=more)))
    statuses = {record.case.workload: record.status for record in read_run(tmp_path / "run").records}
    assert (code, statuses) == (0, {"ioping": "skipped", "dd": "ok"}), err


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_launch_leaves_no_files(
    clean: Started, launch: Launch, tmp_path: Path, number: signal.Signals
) -> None:
    need(clean, "tools")
    before = folders()
    more = 'storage = ["bind"]\nbenchmarks = [{ name = "dd", count = 4096 }]'
    process = launch(PLAN.replace("iters = 1", "iters = 1000").format(more=more))
    end = time.monotonic() + 60
    while time.monotonic() < end and folders() == before:
        time.sleep(0.05)
    process.send_signal(number)
    code, _, err = ended(process)
    assert code == 130, err
    assert folders() == before
