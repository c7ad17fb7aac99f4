"""A volume that the engine cannot make: one message, a failed record, exit code 1, and nothing left."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_engine import made_engine

from collbench.cli import launch
from collbench.launch import engines
from collbench.launch.campaign import PreparedCampaign
from collbench.launch.engines.spec import Stack
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.launch.launchers import PROCESS
from collbench.launch.stacks import Stacks
from collbench.launch.waiting import StopCheck
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import Plan
from collbench.schema.store import read_run

PLAN = """
images = ["tools"]
policies = ["multi"]
storage = ["volume"]
benchmarks = ["dd"]
launches = 1
"""

REFUSAL = "error while creating volume: mkdir /var/lib/docker/volumes/1: no space left on device"


def test_a_volume_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Collbench) -> None:
    pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")
    networks: set[str] = set()

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith("/containers/create"):
            return 500, {"message": REFUSAL}
        if path.startswith("/networks/create"):
            networks.add("n1")
            return 201, {"Id": "n1"}
        if method == "DELETE":
            networks.remove(path.rpartition("/")[2])
            return 204, None
        if path.startswith("/containers/json"):
            return 200, []
        return (200, [{"Id": name} for name in networks]) if path.startswith("/networks") else None

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    with made_engine(tmp_path, answer) as made:

        def expanded_on_one_core(plan: Plan) -> ExpandedPlan:
            return expand(plan, lambda engine: Topology((Core(0),)))

        def prepared(expanded: ExpandedPlan, check: StopCheck, held: object) -> PreparedCampaign:
            session = engines.get("docker").connect(
                msgspec.structs.replace(expanded.plan, docker_host=made.host), check
            )
            stack = Stack(PROCESS, "sha256:1", grants=frozenset())
            return PreparedCampaign(
                expanded, {"docker": session}, Stacks({("docker", "tools", None): stack}, (), (), ())
            )

        monkeypatch.setattr(launch, "expand_and_check", expanded_on_one_core)
        monkeypatch.setattr(launch, "prepare", prepared)
        done = here("launch", tmp_path / "plan.toml", "--out", tmp_path / "run")
    asked = [body["HostConfig"]["Mounts"][-1] for body in made.bodies if "HostConfig" in body]
    assert [(mount["Type"], mount["Target"]) for mount in asked] == [("volume", "/tmp")]  # noqa: S108 - in the container
    assert done.code == 1
    said = [line for line in done.err.splitlines() if not line.startswith("#")]
    (line,) = said
    assert line.startswith("collbench: launch 0 (tools multi strict on volume, 1 rank) failed: container cb")
    assert line.endswith(f"-0-c0: {REFUSAL}")
    (record,) = read_run(tmp_path / "run").records
    assert record.status == "failed" and record.reason is not None and record.reason.endswith(REFUSAL)
    assert networks == set(), "nothing is left on the engine"
    assert list((tmp_path / "tmp").iterdir()) == [], "nor in temporary folders"
