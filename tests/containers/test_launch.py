"""Launches on a real engine: every step of the ladder as the ranks see it, every image, the host beside containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collbench.errors import ImageMissing
from collbench.schema.record import Record
from collbench.schema.store import Run, read_run
from tests.containers.conftest import ROOT, Launch, Started, ended
from tests.containers.worlds import LADDER


def by_step(run: Run) -> dict[tuple[str, str | None], list[Record]]:
    found: dict[tuple[str, str | None], list[Record]] = {}
    for record in run.records:
        found.setdefault((record.case.policy, record.case.isolation), []).append(record)
    return found


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_every_step_measures_and_shares_what_it_says(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    code, out, err = ended(launch(LADDER.format(image=image, policies='"multi", "single"')))
    assert code == 0, (out, err)
    found = by_step(read_run(tmp_path / "run"))
    assert len(found) == 3 + 5
    for (policy, step), records in found.items():
        assert [record.status for record in records] == ["ok", "ok"]
        for record in records:
            assert record.ranks is not None and record.check is not None
            assert record.check.wrong == 0
            assert record.ranks.binding == ("0", "1")
            assert record.ranks.container == (("c0", "c0") if policy == "multi" else ("c0", "c1"))
            assert record.transport is not None
            _assert_confined(record, policy, step)
    assert "over" in out


def _assert_confined(record: Record, policy: str, step: str | None) -> None:
    """Seen from inside."""
    assert step is not None
    steps = ("strict", "limits", "ipc", "net", "visible")
    height = steps.index(step)
    spaces = [one.namespaces for one in record.confinement]
    shared = {name for name in spaces[0] if len({space[name] for space in spaces}) == 1}
    if policy == "single":
        expected = {"ipc": height >= 2, "pid": height >= 2, "net": height >= 3, "mnt": False}
        assert {name: name in shared for name in expected} == expected
    for one in record.confinement:
        assert one.shm == (64 << 20 if height == 0 else 1 << 30)
        assert ("SYS_PTRACE" in one.capabilities) == (height >= 2)
        assert set(one.capabilities) <= {"SYS_NICE", "SYS_PTRACE"}
        assert one.seccomp and one.no_new_privileges


@pytest.mark.docker
def test_host_and_container_in_one_run(clean: Started, launch: Launch, tmp_path: Path) -> None:
    if not (ROOT / ".venvs" / "openmpi").exists() and "OMPI" not in os.environ.get("COLLBENCH_HOST_MPI", ""):
        pytest.skip("no environment .venvs/openmpi beside the image (make test makes one)")
    plan = LADDER.format(image="openmpi", policies='"host", "multi"').replace('"limits", "ipc", "net", "visible"', "")
    code, out, err = ended(launch(plan))
    assert code == 0, (out, err)
    run = read_run(tmp_path / "run")
    assert set(by_step(run)) == {("host", None), ("multi", "strict")}
    experiment = run.manifest.experiment
    assert experiment is not None
    sides = [experiment.images[0].libraries[0], experiment.environments[0].libraries[0]]
    assert all(side.sha256 for side in sides)
    assert experiment.images[0].id is not None


@pytest.mark.docker
def test_torch_in_containers(clean: Started, launch: Launch, tmp_path: Path) -> None:
    try:
        clean.engine.image("collbench/torch")
    except ImageMissing as error:
        pytest.skip(f"{error} It needs a CPU build of torch for the base's Python: make images does not build it")
    plan = LADDER.format(image="torch", policies='"multi", "single"').replace(
        '"limits", "ipc", "net", "visible"', '"net"'
    )
    code, out, err = ended(launch('backends = ["torch-gloo"]\n' + plan))
    assert code == 0, (out, err)
    found = by_step(read_run(tmp_path / "run"))
    assert set(found) == {("multi", "strict"), ("multi", "ipc"), ("single", "strict"), ("single", "net")}
    assert {record.transport for records in found.values() for record in records} == {"tcp"}
