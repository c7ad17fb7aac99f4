"""Parameter servers on a cluster, without one: where they are placed, what Slurm is given, and what ranks compare."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.slurm_texts import without_its_loop

from collbench.errors import PlanError
from collbench.launch.engines.slurm import all_launches
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm.job import SlurmJob
from collbench.launch.engines.slurm.script import Resources, job_script, resources_of
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.launch.expansion import ExpandedPlan, expand, shapes_of
from collbench.machine.facts import RankFacts, rank_facts
from collbench.run import binding
from collbench.run.binding import shape_difference
from collbench.schema.plan import Plan
from collbench.schema.world import SHAPE, Shape, shapes, text_of

SITE = """\
[slurm]
folder = "/lustre/collbench"
cores = 8
gpus = 2
runtime = "{runtime}"
images = {{ openmpi = "/img/openmpi", torch = "/img/torch" }}
environments = {{ torch = "/lustre/torch" }}
options = ["--partition=gpu"]
{more}
"""

#: The servers of trainings, which need no library but torch.
TRAINING = Plan(images=("torch",), policies=("host",), benchmarks=("parameter_server",), workers=(2,),
                      servers=(1,), hosts=(2,), launches=1, engine="slurm")  # fmt: skip

#: A server without a GPU for workers with one.
WITH_GPUS = Plan(images=("openmpi",), policies=("multi",), collectives=("ps_bcast",), backends=("nccl",),
                       sizes=("8",), device="gpu", workers=(4,), hosts=(1, 3), launches=1, engine="slurm")  # fmt: skip


def expanded(folder: Path, plan: Plan = TRAINING, runtime: str = "charliecloud", more: str = "",
             **changes: Any) -> ExpandedPlan:  # fmt: skip
    path = folder / "site.toml"
    path.write_text(SITE.format(runtime=runtime, more=more))
    return expand(msgspec.structs.replace(plan, site=str(path), **changes))


def script(*given: Any, **changes: Any) -> str:
    done = expanded(*given, **changes)
    return all_launches(done.plan, done.order, done.placements)


def test_a_server_without_a_gpu_is_on_a_node_of_its_own_or_beside_its_workers(
    golden: Callable[[str, str], None], tmp_path: Path
) -> None:
    """A heterogeneous job; with hosts = 1 the server is on a node of its second component, which has the GPUs."""
    more = 'servers = { options = ["--partition=cpu"] }'
    plan = msgspec.structs.replace(WITH_GPUS, workers=(2,), cores_per_rank=2)
    golden("slurm-servers.sh", without_its_loop(script(tmp_path, plan, "pyxis", more)))


def test_servers_have_the_first_of_several_hosts(tmp_path: Path) -> None:
    done = expanded(tmp_path, workers=(4,), servers=(2,), hosts=(3,), policies=("multi", "single"))
    places = {cell.policy: [(box.host, box.ranks) for box in at.boxes] for cell, at in done.placements.items()}
    assert places == {
        "multi": [(0, (0, 1)), (1, (2, 3)), (2, (4, 5))],
        "single": [(0, (0,)), (0, (1,)), (1, (2,)), (1, (3,)), (2, (4,)), (2, (5,))],
    }  # fmt: skip
    assert done.cells[0].title == "torch multi files, 2 servers and 4 workers on 3 hosts"
    kinds = {cell.policy: shapes_of(cell, at) for cell, at in done.placements.items()}
    assert kinds["multi"] == (
        Shape(hosts=1, each=2, cores=1, boxes="host"),
        Shape(hosts=2, each=2, cores=1, boxes="host"),
    )
    assert [shape.boxes for shape in kinds["single"]] == ["rank", "rank"]


def test_a_server_has_as_many_cores_as_a_worker_and_no_gpu(tmp_path: Path) -> None:
    done = expanded(tmp_path, WITH_GPUS, hosts=(3,))
    (placement,) = done.placements.values()
    assert [len(slot.cores) for slot in placement.slots] == [4] * 5
    assert [slot.gpu is None for slot in placement.slots] == [True, False, False, False, False]


def test_on_one_host_servers_are_ordinary_ranks(tmp_path: Path) -> None:
    text = script(tmp_path, hosts=(1,), servers=(0, 1, 2))
    assert "hetjob" not in text and "--het-group" not in text and "WORKER_NODE" not in text
    assert "--nodes=1 --ntasks=4 --ntasks-per-node=4" in text, "two servers and two workers"


def test_a_world_beside_those_with_a_node_for_servers_begins_on_a_node_of_workers(tmp_path: Path) -> None:
    steps = script(tmp_path, hosts=(1, 2)).split("\n# step ")[1:]
    together = next(step for step in steps if "on 2 hosts" not in step)
    (apart,) = (step for step in steps if step != together)
    assert "export FIRST_NODE=$WORKER_NODE\n" in together and together.count("--het-group=1 ") == 1
    assert "FIRST_NODE=$WORKER_NODE" not in apart and apart.count("--het-group=") == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workers": (3,), "hosts": (3,)}, "1 server and 3 workers on 3 hosts: 3 workers cannot be spread evenly over "
                                           "2 hosts beside that of the servers. Take a multiple of it."),
        ({"hosts": (4,)}, "2 workers cannot be spread evenly over 3 hosts beside"),
        ({"servers": (0,)}, "1 rank on 2 hosts: 1 rank cannot be spread evenly over 2 hosts"),
        ({"servers": (9,)}, "9 ranks with 1 core each need 9 cores, and a node of the site offers 8"),
        ({"spare": "chief"}, 'spare "chief": all ranks of a node get as many cores'),
        ({"benchmarks": ("dd",), "workers": (), "servers": (1,), "hosts": (1,)}, "benchmarks of storage"),
        ({"more": "servers = { cores = 3 }"}, "unknown key 'cores'"),
        ({"more": 'servers = { options = ["cpu"] }'}, "option 'cpu': is no flag of sbatch"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError) as refused:
        script(tmp_path, **changes)
    assert says in str(refused.value)


def test_servers_have_the_options_of_all_nodes_where_the_site_has_no_others(tmp_path: Path) -> None:
    assert script(tmp_path).count("#SBATCH --partition=gpu\n") == 2
    assert script(tmp_path, more="servers = { options = [] }").count("#SBATCH --partition=gpu\n") == 1


def test_a_job_asks_for_the_cores_of_a_node_once(tmp_path: Path) -> None:
    """Not for as many tasks as one world has, with as many cores as a task of another has; shared cores count once."""
    of_gpus = resources_of(expanded(tmp_path, WITH_GPUS, hosts=(1, 3), workers=(2,)).placements.items())
    assert of_gpus == Resources(2, 1, 8, 2, Resources(1, 1, 8, 0))
    crowded = expanded(tmp_path, servers=(3,), cores_per_rank=4, oversubscribe=True)
    assert resources_of(crowded.placements.items()) == Resources(1, 2, 4, 0, Resources(1, 2, 4, 0))
    assert "--overcommit" in all_launches(crowded.plan, crowded.order, crowded.placements)


#: A server on n0, and two workers each on n1 and n2; of one core.
WORLD = (Shape(hosts=1, each=1, cores=1), Shape(hosts=2, each=2, cores=1))


def seats(*places: tuple[str, int]) -> tuple[RankFacts, ...]:
    """Ranks by host and core."""
    return tuple(replace(rank_facts(), host=host, kernel_id=host, cores=frozenset({core}), gpu=None)
                 for host, core in places)  # fmt: skip


PLACES = (("n0", 0), ("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1))


def test_a_world_with_a_host_for_servers_as_planned() -> None:
    assert shape_difference(WORLD, seats(*PLACES)) is None
    assert binding.difference(seats(*PLACES), None, {SHAPE: text_of(WORLD)}) is None


@pytest.mark.parametrize(
    ("places", "says"),
    [
        (PLACES[:4], "5 ranks were planned, and 4 met"),
        ((PLACES[1], PLACES[0], *PLACES[2:]), "2 hosts were planned, and ranks 1 to 4 are on 3 (n0, n1, n2)"),
        ((("n1", 2), *PLACES[1:]), "ranks 0 and 1 were planned on different hosts, and both are on n1"),
        ((*PLACES[:2], ("n2", 2), *PLACES[3:]), "2 ranks were planned on each host, and n1 has 1"),
        ((*PLACES[:2], ("n1", 0), *PLACES[3:]), "ranks 1 and 2 share core 0 of n1"),
    ],
)
def test_what_differs_is_said(places: tuple[tuple[str, int], ...], says: str) -> None:
    assert shape_difference(WORLD, seats(*places)) == says


def test_a_shape_is_read_as_it_was_written() -> None:
    for planned in (WORLD, WORLD[:1]):
        assert shapes({SHAPE: text_of(planned)}) == planned
    assert text_of(WORLD[:1]).startswith("{"), "one shape stands for itself"


@pytest.mark.parametrize(("rank", "local", "taken"), [(0, 0, {0}), (1, 0, {0, 1}), (2, 1, {2, 3}), (4, 1, {1})])
def test_a_rank_takes_the_cores_of_its_own_shape(
    monkeypatch: pytest.MonkeyPatch, rank: int, local: int, taken: set[int]
) -> None:
    """Of one mask for all ranks of a node."""
    asked: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, wanted: asked.append(set(wanted)))
    srun = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "5", "SLURM_LOCALID": str(local), "SLURM_STEP_ID": "0"}
    world = (WORLD[0], Shape(hosts=1, each=2, cores=2), Shape(hosts=1, each=2, cores=1))
    binding.bind(None, srun | {SHAPE: text_of(world)})
    assert asked == [taken]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """`play(name, text)`: what plays one of Slurm's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def played(name: str, text: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(stat.S_IRWXU)

    return played


def test_a_job_has_ended_when_a_component_has(play: Callable[[str, str], None]) -> None:
    first = "JobId=7 HetJobId=7 JobState=RUNNING Reason=None NodeList=n0"
    play("scontrol", f"echo '{first}'; echo 'JobId=8 HetJobId=7 JobState=RUNNING Reason=None NodeList=n[1-2]'")
    both = jobs.state_of("7")
    assert (both.text, both.alive, both.there, both.nodes) == ("RUNNING", True, True, "n0,n[1-2]")
    play("scontrol", f"echo '{first}'; echo 'JobId=8 HetJobId=7 JobState=NODE_FAIL Reason=NodeDown NodeList=n1'")
    lost = jobs.state_of("7")
    assert (lost.text, lost.alive, lost.there) == ("NODE_FAIL (NodeDown)", False, True)


def test_what_is_left_of_a_job_is_cancelled(play: Callable[[str, str], None], tmp_path: Path) -> None:
    """Its folder is removed when no component is there any more."""
    gone = tmp_path / "gone"
    lost = "echo JobId=8 JobState=NODE_FAIL Reason=NodeDown"
    play("scontrol", f"{lost}; [ -e {gone} ] && echo JobId=7 JobState=CANCELLED || echo JobId=7 JobState=RUNNING")
    play("scancel", f"touch {gone}")
    folder = tmp_path / "job"
    folder.mkdir()
    SlurmJob("7", folder).end()
    assert gone.exists() and not folder.exists()


def test_the_job_knows_the_first_node_of_its_ranks_and_that_of_workers_alone(
    play: Callable[[str, str], None], tmp_path: Path
) -> None:
    """The script itself, under bash."""
    play("scontrol", "echo \"$3\" | tr , '\\n'")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "driver").write_text("0\n")
    site = SlurmSite(folder=str(tmp_path), cores=1)
    needs = Resources(2, 1, 1, 0, servers=Resources(1, 1, 1, 0))
    (folder / "step-0").write_text('echo "$FIRST_NODE $WORKER_NODE"; touch end\n')
    groups = {"SLURM_JOB_NODELIST_HET_GROUP_0": "s0", "SLURM_JOB_NODELIST_HET_GROUP_1": "w0,w1"}
    text = job_script("name", folder, site, needs)
    subprocess.run(("bash", "-c", text), env=os.environ | groups, timeout=30, check=True)
    assert (folder / "log-0").read_text() == "s0 w0\n" and (folder / "nodes").read_text() == "s0\nw0\nw1\n"
