"""What the manifest of a launch on Slurm says of its software, its variables and its allocation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.test_slurm import PLAN, play, programs, site_file

from collbench.launch import campaign
from collbench.launch.engines.fake import contents
from collbench.launch.engines.slurm import SlurmSession, look_at
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm.job import SlurmJob
from collbench.launch.engines.slurm.script import NodeOutput
from collbench.launch.engines.slurm.site import read
from collbench.launch.engines.spec import Looks
from collbench.launch.stacks import Stacks
from collbench.machine import facts
from collbench.schema.manifest import Allocation
from collbench.schema.plan import Plan

__all__ = ["programs"]

#: What scontrol says of the job.
SAID = "JobId=7 Partition=all JobState=RUNNING Reason=None NodeList=n[0-1]"

#: What `setup` of the site, or the image, has set where the probe runs.
FOUND = {"UCX_NET_DEVICES": "eth0", "OMP_NUM_THREADS": "8"}


@pytest.fixture
def answers(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose steps answer."""
    play(programs, "scontrol", f"echo '{SAID}'")
    play(programs, "srun", "echo slurm 22.05.8")

    def answer(job: Any, asked: Any, site: Any, argv: tuple[str, ...], *_: Any) -> tuple[NodeOutput, ...]:
        if argv[-1] == "collbench.launch.node":
            return (NodeOutput("n0", (msgspec.json.encode(facts.host()).decode(),)),)
        held = contents("openmpi")
        python = "3.12" if asked.cell.isolation is None else "3.11"
        line = msgspec.json.encode(msgspec.structs.replace(held, python=python, environment=FOUND)).decode()
        return (NodeOutput("n0", (line,)),)

    monkeypatch.setattr("collbench.launch.engines.slurm.answers_of", answer)


class Session(SlurmSession):
    """A cluster whose job is there already."""

    def look(self, plan: Plan, placements: Any, vendors: Any) -> Looks:
        self.job = SlurmJob("7", Path("/nowhere"))
        return look_at(self.job, self.site, plan, placements, self.check)

    def close(self, at_once: bool) -> None:
        """Nothing was submitted."""


def prepared(folder: Path, policies: tuple[str, ...], **site: Any) -> campaign.PreparedCampaign:
    path = site_file(folder, runtime="charliecloud", **site)
    plan = msgspec.structs.replace(PLAN, policies=policies, site=path)
    return campaign.prepare(plan, lambda: None, {"slurm": Session(read(path), lambda: None)})


def looked(folder: Path, policies: tuple[str, ...], **site: Any) -> Stacks:
    return prepared(folder, policies, **site).stacks


@pytest.mark.usefixtures("answers")
def test_what_runs_on_bare_nodes_is_an_environment(tmp_path: Path) -> None:
    host = looked(tmp_path, ("host",))
    assert ([side.python for side in host.environments], host.images, host.differences) == (["3.12"], (), ())
    both = looked(tmp_path, ("host", "multi"))
    assert [[side.python for side in sides] for sides in (both.environments, both.images)] == [["3.12"], ["3.11"]]
    assert both.differences == (
        "openmpi: apart from the container, host and image differ: Python 3.12 on the host, 3.11 in the image",
    )  # fmt: skip


@pytest.mark.usefixtures("answers")
def test_variables_of_the_site_and_of_its_setup_are_recorded(tmp_path: Path) -> None:
    variables = {"UCX_TLS": "rc,sm", "OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "HOME": "/x", "UCX_TOKEN": "secret"}
    reached = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "UCX_NET_DEVICES": "eth0", "UCX_TLS": "rc,sm"}
    both = prepared(tmp_path, ("host", "multi"), variables=variables)
    assert [side.environment for side in (*both.stacks.environments, *both.stacks.images)] == [reached] * 2
    manifest = campaign.campaign_manifest(both, ("collbench",))
    assert manifest.environment == reached
    threads = looked(tmp_path, ("host",), variables={"OMP_NUM_THREADS": "2"})
    assert threads.environment["OMP_NUM_THREADS"] == "2", "else ranks have one, whatever the setup says"


@pytest.mark.usefixtures("answers")
def test_the_allocation_is_recorded(tmp_path: Path) -> None:
    manifest = campaign.campaign_manifest(prepared(tmp_path, ("host",)), ("collbench",))
    assert manifest.experiment is not None
    made = Allocation(job="7", partition="all", nodes="n[0-1]", options=("--exclusive",))
    assert manifest.experiment.allocation == made
    assert json.loads(msgspec.json.encode(manifest))["experiment"]["allocation"]["nodes"] == "n[0-1]"


def test_partitions_of_all_components_are_read(programs: Path) -> None:
    play(
        programs, "scontrol", "echo 'JobState=RUNNING Partition=cpu NodeList=n0'; echo 'JobState=RUNNING Partition=gpu'"
    )
    assert jobs.state_of("1").partition == "cpu,gpu"
